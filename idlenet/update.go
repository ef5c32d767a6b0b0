package idlenet

import (
	"fmt"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Config returns the present configuration with its defaults filled in.
func (l *Listener) Config() Config {
	cfg := l.settings.Load().cfg
	cfg.Reset = slices.Clone(cfg.Reset)
	return cfg
}

// Update changes the configuration at run time. The function edits a copy of the present one, with
// its defaults filled in, and must not call the Listener. If the result is wrong, Update returns an
// error that joins all that is wrong, and changes nothing. Tick, Stamp, Sources and AcceptRate
// cannot change. All
// connections are judged by the new configuration at the next tick.
func (l *Listener) Update(edit func(*Config)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.settings.Load()
	cfg := l.Config()
	edit(&cfg)
	cfg.Stamp, cfg.Sources, cfg.AcceptRate = old.cfg.Stamp, old.cfg.Sources, old.cfg.AcceptRate
	cfg, err := cfg.check(l.clock.Tick())
	if err != nil {
		return err
	}
	if err := cfg.checkSockets(l.inner.Addr()); err != nil {
		return err
	}
	l.clock.Remember(cfg.clockMemory())
	l.settings.Store(newSettings(cfg, old.drain, old, l.clock.Elapsed()))
	l.updates++
	cfg.Logger.Info("configuration changed", "idlenet", cfg)
	return nil
}

// Limits returns the present configuration by the names of its settings, which docs/settings.md
// lists for idle.Config. Durations are texts such as 1m30s.
func (l *Listener) Limits() map[string]any {
	cfg := l.Config()
	return configtable.Net.JSON(&cfg)
}

// Adjust is [Listener.Update] for timeouts by their names, such as read-timeout. The error joins
// all that is wrong, a name that is no timeout included; then nothing is changed.
func (l *Listener) Adjust(timeouts map[string]time.Duration) error {
	if err := configtable.Net.CheckAdjustable(timeouts); err != nil {
		return fmt.Errorf("idlenet: %w", err)
	}
	return l.Update(func(cfg *Config) { configtable.Net.Adjust(cfg, timeouts) })
}

// Drain ends all connections bit by bit, so that their peers do not all come back elsewhere at the
// same moment. Each connection has a moment of its own within spread, by chance. If it was active
// in the second before that moment, it gets a later one between spread and deadline. A held
// connection stays until the deadline. The reason is [Drained]. From the call on new connections
// are closed, and ObserveOnly is off.
//
// Both times count from now. The error says that spread is not from 0 to deadline, or that deadline
// is above ten years. Drain returns at once: [Listener.Connections] tells how many are left. A
// drain cannot be taken back. Another call with a sooner deadline replaces the first one; a later
// deadline changes nothing.
func (l *Listener) Drain(spread, deadline time.Duration) error {
	if spread < 0 || spread > deadline || deadline > configtable.TenYears {
		return fmt.Errorf("idlenet: Drain with a spread of %v and a deadline of %v: set a spread from 0 to the deadline, "+
			"and a deadline of at most ten years", spread, deadline)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.settings.Load()
	now := l.clock.Elapsed()
	began := max(now, 1)
	if d := old.drain; d == (verdict.Drain{}) || began.Add(deadline) < d.Began.Add(d.Deadline) {
		l.settings.Store(newSettings(old.cfg, verdict.Drain{Began: began, Spread: spread, Deadline: deadline}, old, now))
		l.poke()
	}
	return nil
}
