package server

import (
	"context"
	"net"
	"os"
)

// A setup is what Run finds out before the event loops start. It is immutable.
type setup struct {
	listeners []net.Listener
	budget    budget
	limit     int           // of connections at the start; 0 if there is none
	groups    []memoryGroup // with a memory limit
}

// newSetup listens on the addresses and finds out how many connections there is room for. If it
// returns an error, the setup has the listeners that are open.
func newSetup(ctx context.Context, cfg *Config) (*setup, error) {
	var err error
	set := &setup{groups: limitedGroups(os.DirFS("/"))}
	if set.listeners, err = listenAll(ctx, cfg.Addresses, cfg.ReusePort); err != nil {
		return set, err
	}
	set.listeners = append(set.listeners, cfg.Listeners...)
	set.budget = newBudget(cfg, len(set.listeners))
	set.limit, err = set.budget.connections()
	if err == nil && set.limit < cfg.Idle.MaxConnections {
		cfg.Logger.Warn("fewer connections than configured", "limit", set.limit, "because", set.budget.why(set.limit))
	}
	return set, err
}
