package idlenet

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/watch"
)

// Config returns the present configuration with its defaults filled in.
func (r *Reaper) Config() Config { return watch.Present[Config](&r.watch) }

// Update changes the configuration at run time. The function edits a copy of the present one, with
// its defaults filled in. It may be called again if another Update comes in between, and must not
// call the Reaper. If the result is wrong, Update returns an error that joins all that is wrong,
// and changes nothing. Tick, Stamp, Sources and AcceptRate cannot change. Limits of
// [Conn.SetLimits] stay. A deadline that has passed by the next ticks is judged by the new
// configuration from the call of Update on.
func (r *Reaper) Update(edit func(*Config)) error { return watch.Update(&r.watch, edit, r.check) }

func (r *Reaper) check(cfg *Config, tick time.Duration, before *Config) (watch.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cfg.check(r.addr, tick, before)
}

// Limits returns the present configuration by the names of its settings, which docs/settings.md
// lists for idle.Config. Durations are texts such as 1m30s.
func (r *Reaper) Limits() map[string]any {
	return watch.JSON[Config](&r.watch)
}

// Adjust is [Reaper.Update] for timeouts by their names, such as read-timeout. The error joins
// all that is wrong, a name that is no timeout included; then nothing is changed.
func (r *Reaper) Adjust(timeouts map[string]time.Duration) error {
	return watch.Adjust(&r.watch, timeouts, r.check)
}

// Drain ends all connections gradually, so that their peers do not all come back elsewhere at the
// same moment. Each connection has a moment of its own within spread, by chance. If it was active
// in the second before that moment, it gets a later one between spread and deadline. A held
// connection stays until the deadline. The reason is reap.Drained. From the call on new connections
// are closed, and ObserveOnly is off.
//
// Both times count from now. The error says that spread is not from 0 to deadline, or that deadline
// is above ten years. Drain returns at once: [Reaper.Connections] tells how many are left. A
// drain cannot be taken back. Another call with a sooner deadline replaces the first one; a later
// deadline changes nothing.
func (r *Reaper) Drain(spread, deadline time.Duration) error { return r.watch.Drain(spread, deadline) }

// ScaleTimeouts shortens the idle timeouts of all connections, for a server under pressure: each
// timeout moves from its own value (by = 0) towards least (by = 1). Timeouts below least stay. It
// includes the timeouts of [Conn.SetLimits], and stays in force after Update until it is called
// with by = 0. The error says that by is not from 0 to 1, or that least is negative.
func (r *Reaper) ScaleTimeouts(by float64, least time.Duration) error {
	return r.watch.ScaleTimeouts(by, least)
}
