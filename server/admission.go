package server

import (
	"net/netip"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/idlewheel/idlewheel/sourcelimit"
)

// An admission admits or rejects new connections by their source and by the rate of all. Safe for
// concurrent use.
type admission struct {
	sources *sourcelimit.Sources
	rate    *rate.Limiter // of all connections

	bySource, byRate atomic.Uint64 // rejected connections
	last             atomic.Value  // a string: why the last connection was rejected
}

func newAdmission(cfg *Config) *admission {
	all, _ := sourcelimit.New(cfg.Sources) // Config.check has checked it
	return &admission{sources: all, rate: sourcelimit.NewRate(cfg.AcceptRate)}
}

// admit reports whether a new connection from an address is served. If so, the caller releases it
// from the sources when it is closed.
func (a *admission) admit(from netip.Addr) bool {
	if err := a.sources.Admit(from); err != nil { // first: one source must not use up the rate of all
		a.reject(&a.bySource, err.Error())
		return false
	}
	if !a.rate.Allow() {
		a.sources.Release(from)
		a.reject(&a.byRate, "more connections than the accept rate")
		return false
	}
	return true
}

func (a *admission) reject(count *atomic.Uint64, why string) {
	count.Add(1)
	a.last.Store(why)
}

// total returns the number of rejected connections, and why the last one was.
func (a *admission) total() (n uint64, last string) {
	last, _ = a.last.Load().(string)
	return a.bySource.Load() + a.byRate.Load(), last
}
