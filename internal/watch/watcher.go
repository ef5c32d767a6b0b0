package watch

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A Watcher has what the shards of a front end share. Init makes it ready. Safe for concurrent use.
type Watcher struct {
	// Immutable.
	Clock mono.Clock
	form  *Form
	salt  uint64        // of tags
	Wakes chan struct{} // calls of Wake; has room for one

	Open     atomic.Int64 // connections
	Decided  atomic.Int64 // of Open, those that will close, or that only ObserveOnly keeps
	Closed   ClosedRing
	Monitor  outage.Monitor // except for State, guarded by mu
	settings atomic.Pointer[Settings]
	rule     atomic.Pointer[outage.Rule]
	warnings struct{ hold, outage, group logging.Limiter }
	groups   groups
	silent   silentReaps

	mu      sync.Mutex   // guards the fields below, put, and moves of Clock and Monitor
	updates uint64       // of the Config
	due     mono.Time    // the time of the driver's next round
	lag     mono.Longest // the greatest delay of the driver

	// The shortest idle timeout, and the shortest and longest limit, that SetLimits has given since
	// there was no connection.
	own   struct{ idle, shortest, longest time.Duration }
	usual usual // of all connections
}

// Init makes a Watcher ready, with a checked Config and a real clock.
func (w *Watcher) Init(form *Form, cfg Config, elapsed func() mono.Time) {
	w.form, w.salt, w.Wakes = form, rand.Uint64(), make(chan struct{}, 1)
	w.Clock.Init(cfg.Tick, cfg.clockMemory(), elapsed)
	w.Monitor.Init(elapsed())
	w.groups.init()
	w.put(newSettings(form, cfg, 1, overlay{}, nil, 0))
	cfg.warn()
}

// Settings returns the settings in force.
func (w *Watcher) Settings() *Settings { return w.settings.Load() }

// Rule returns the rule of outages, for connections with limits of their own as well.
func (w *Watcher) Rule() *outage.Rule { return w.rule.Load() }

// put puts settings in force. The caller holds mu.
func (w *Watcher) put(set *Settings) {
	w.settings.Store(set)
	w.groups.due, w.groups.chooseAt = 0, 0
	longest := max(set.Config.Limits.Longest(), w.own.longest)
	common := set.Common.ShortestIdle()
	idle := verdict.Shorter(common, set.scaled(w.own.idle))
	shortest := verdict.Shorter(verdict.Shorter(set.form.Table.Shortest(set.Front).Value, w.own.shortest), idle)
	w.rule.Store(&outage.Rule{
		Tick: set.Tick, Gap: outage.LeastGap(set.Tick, shortest), Hold: set.OutageGrace >= 0, Longest: longest, Busy: outage.MinBusy,
		Memory: max(set.Horizon, longest, set.CloseGrace), Shortest: idle, Usual: cmp.Or(w.usual.timeout, common, idle),
	})
}

// extendRule makes Rule hold for the limits of a connection.
func (w *Watcher) extendRule(own *reap.ConnLimits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lim := verdict.Limits{Jitter: w.Settings().Config.Limits.Jitter}
	override(&lim, own)
	all := w.own
	all.idle, all.longest = verdict.Shorter(all.idle, lim.ShortestIdle()), max(all.longest, lim.Longest())
	for _, d := range []time.Duration{lim.Read, lim.Write, lim.All, lim.Handshake, lim.Stall, lim.Rate.Window, lim.Age} {
		all.shortest = verdict.Shorter(all.shortest, d)
	}
	if all != w.own {
		w.own = all
		w.put(w.Settings())
	}
}

// noteUsual takes note of what is usual in a Shard.
func (w *Watcher) noteUsual(shard uint32, count *idleCount) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.usual.note(shard, count) {
		w.put(w.Settings())
	}
}

// noteUsualOf is noteUsual for a group.
func (w *Watcher) noteUsualOf(g *group, shard uint32, count *idleCount) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.usual.note(shard, count)
}

// Resume begins again after a time without connections.
func (w *Watcher) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own.idle, w.own.shortest, w.own.longest = 0, 0, 0
	w.put(w.Settings())
	_, now := w.Clock.Move()
	w.Monitor.Resume(now)
	w.resumeGroups(now)
	w.due = now.Add(w.untilTick())
}

// Move moves the clock, if a tick has passed, and looks for outages. The function returns the last
// instant at which a peer may have been heard.
func (w *Watcher) Move(heard func(now mono.Time) mono.Time) (found outage.Finding, moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from, to := w.Clock.Move()
	if moved = from != to; moved {
		if w.Open.Load() == 0 { // the silence says nothing
			w.Monitor.Resume(to)
		}
		if found = w.Monitor.Step(from, to, heard(to), *w.Rule()); found.Count {
			count := w.Monitor.State().Count
			count.Add(w.silent.busyIn(count, &w.Clock, to))
		}
		w.stepGroups(to)
	}
	now := w.Clock.Elapsed()
	w.noteLag(now)
	w.due = now.Add(w.untilTick())
	return found, moved
}

// Warn logs a warning, unless the same one was logged less than a second ago.
func (w *Watcher) Warn(limit *logging.Limiter, text string, args ...any) {
	if limit.AllowAt(w.Clock.Elapsed()) {
		w.Settings().Logger.Warn(text, args...)
	}
}

// Report logs a finding about outages, and those about groups.
func (w *Watcher) Report(f outage.Finding) {
	w.reportGroups()
	switch {
	case f.Held > 0:
		w.Warn(&w.warnings.hold, "nothing is heard from connections that were busy until now: "+
			"verdicts about peers are suspended", "silent", f.Held)
	case f.GivenUp:
		w.Warn(&w.warnings.outage, "nothing was heard from any connection for two timeouts: "+
			"verdicts about peers go on", "outage", f.Outage.Length)
	case f.Outage.Length > 0 && f.Silent:
		w.Warn(&w.warnings.outage, "the silence of all connections is over: "+
			"verdicts about peers are postponed by its length", "outage", f.Outage.Length)
	case f.Outage.Length > 0:
		w.Warn(&w.warnings.outage, "the server stood still: "+
			"verdicts about peers are postponed by the length of the outage", "outage", f.Outage.Length)
	}
}

// Stats exports the sum of the Counters of all shards, with what the Watcher has counted. It says
// whether the driver runs.
func (w *Watcher) Stats(all *Counters, runs bool) reap.Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := all.Stats
	s.Events, s.Reaped, s.Observed = all.Events.Export(), all.Reaped.Export(), all.Observed.Export()
	s.Lateness = all.Lateness.Export()
	s.Updates, s.Draining = w.updates, w.Settings().Draining()
	now := w.Clock.Elapsed()
	if runs { // it may be late at present
		w.noteLag(now)
	}
	s.ClockDelay = w.lag.Worst(now, lagWindow)
	s.Outages, s.OutageTime, s.Suspensions = w.Monitor.Outages, w.Monitor.Time, w.Monitor.Holds
	s.GroupSuspensions = w.groups.holds
	if runs {
		s.SuspendedFor = w.held(now)
	}
	s.Suspended = runs && w.Monitor.State().Held()
	return s
}

// Present returns a copy of the Config of the front end in force.
func Present[C any](w *Watcher) C {
	set := w.Settings()
	cfg := *set.Front.(*C)
	cloneReset(&cfg)
	configtable.Field("ObserveOnly").Of(&cfg).SetBool(set.ObserveOnly) // Drain switches it off
	return cfg
}

// JSON returns the Config of the front end in force by the names of its settings.
func JSON[C any](w *Watcher) map[string]any {
	cfg := Present[C](w)
	return w.form.Table.JSON(&cfg)
}

// A Checker checks a Config that is to replace the one before.
type Checker[C any] func(cfg *C, tick time.Duration, before *C) (Config, error)

// Update replaces the Config by an edited copy, and logs the settings that have changed.
func Update[C any](w *Watcher, edit func(*C), check Checker[C]) error {
	for {
		old := w.Settings()
		cfg := Present[C](w)
		before := cfg
		edit(&cfg)
		checked, err := check(&cfg, w.Clock.Tick(), old.Front.(*C))
		if err != nil {
			return err
		}
		if w.replace(old, checked) {
			if changes := w.form.Table.Changes(&before, &cfg); len(changes.Group()) > 0 {
				checked.Logger.Info("configuration changed", w.form.Package, changes)
			}
			if c, o := &checked.Limits, &old.Limits; c.Read != o.Read || c.Heartbeat != o.Heartbeat {
				checked.warn()
			}
			return nil
		}
	}
}

// replace puts a checked Config in the place of old settings. It reports false if these are not the
// present ones any more.
func (w *Watcher) replace(old *Settings, cfg Config) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settings.Load() != old {
		return false
	}
	w.Clock.Remember(cfg.clockMemory())
	w.put(old.next(cfg, old.overlay, w.Clock.Elapsed()))
	w.Closed.Keep(cfg.KeepClosed)
	w.updates++
	w.Wake()
	return true
}

// Adjust is Update for timeouts by their names.
func Adjust[C any](w *Watcher, timeouts map[string]time.Duration, check Checker[C]) error {
	var unknown error
	edit := func(cfg *C) { unknown = w.form.Table.Adjust(w.form.Package, cfg, timeouts) }
	return Update(w, edit, func(cfg *C, tick time.Duration, before *C) (Config, error) {
		checked, err := check(cfg, tick, before)
		return checked, errors.Join(unknown, err)
	})
}

// ScaleTimeouts shortens the idle timeouts: each moves from its own value (by = 0) towards least
// (by = 1).
func (w *Watcher) ScaleTimeouts(by float64, least time.Duration) error {
	if !(by >= 0 && by <= 1) || least < 0 {
		return fmt.Errorf("%s: ScaleTimeouts by %v to %v: set a part from 0 to 1 and a timeout that is not negative",
			w.form.Package, by, least)
	}
	w.lay(func(o *overlay) { o.scale = scale{by, least} })
	return nil
}

// Drain closes all connections gradually.
func (w *Watcher) Drain(spread, deadline time.Duration) error {
	if spread < 0 || spread > deadline || deadline > configtable.TenYears {
		return fmt.Errorf("%s: Drain with a spread of %v and a deadline of %v: set a spread from 0 to the deadline, "+
			"and a deadline of at most ten years", w.form.Package, spread, deadline)
	}
	w.lay(func(o *overlay) {
		began := max(w.Clock.Elapsed(), 1)
		if d := o.drain; d == (verdict.Drain{}) || began.Add(deadline) < d.Began.Add(d.Deadline) {
			o.drain = verdict.Drain{Began: began, Spread: spread, Deadline: deadline}
		}
	})
	return nil
}

// lay changes the overlay of the settings.
func (w *Watcher) lay(change func(*overlay)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.settings.Load()
	now := old.overlay
	if change(&now); now != old.overlay {
		w.put(old.next(old.Config, now, w.Clock.Elapsed()))
		w.Wake()
	}
}

// NewError returns the reason for a connection that the front end ends by itself.
func (w *Watcher) NewError(r reap.Reason) *reap.Error {
	return &reap.Error{Package: w.form.Package, Reason: r}
}

// NotWatched returns the error for a connection that is not watched.
func (form *Form) NotWatched() error { return fmt.Errorf("%s: %w", form.Package, reap.ErrNotWatched) }
