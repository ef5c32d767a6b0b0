package idle

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/setting"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	defaultTick = 100 * time.Millisecond
	minTick     = time.Millisecond
	maxTicks    = 1 << 30 // of any duration: an instant has 32 bits
	maxTimeout  = setting.TenYears
	maxSlots    = 1 << 12
	minHorizon  = 1 << 11 // ticks
	maxHorizon  = 1 << 15 // ticks: the clock remembers twice as many moves, 512 KiB

	defaultMaxMissed = 2
	maxMaxMissed     = 15 // a state has four bits for them
	defaultWindow    = 5 * time.Second
)

// Config says when a connection is dead or has to go, and what becomes of it. All that is zero is off; at least one limit
// has to be set. Negative values are refused. It is copied by [Middleware] and [Reaper.Update].
type Config struct {
	// ReadTimeout is how long the peer may send nothing before the connection is read idle: it is reaped, or OnIdle of
	// an [IdleHandler] is asked.
	ReadTimeout time.Duration

	// WriteTimeout is how long nothing may be sent to the peer before the connection is write idle: OnIdle is asked; without
	// one nothing happens but that it is counted. What counts is what the kernel sends, whoever wrote it: see "What counts as
	// a write" in the package comment.
	WriteTimeout time.Duration

	// AllTimeout is how long nothing may be sent in either direction before the connection is all idle: it is reaped, or
	// OnIdle is asked.
	AllTimeout time.Duration

	// Jitter spreads the three idle timeouts, so that connections that came all at once do not go all at once: each
	// connection has its own share between nothing and this part of the timeout added. At most 1, which is up to twice
	// the timeout.
	Jitter float64

	// FirstByteTimeout is how long the peer may take to send its first byte.
	FirstByteTimeout time.Duration

	// HandshakeTimeout is how long it may take until the handler calls [Reaper.MarkReady]. Bytes do not extend it.
	HandshakeTimeout time.Duration

	// WriteStallTimeout is how long output may wait for the peer without any of it being taken. Output
	// in gnet's buffer is checked four times in that time, so a stalled connection may stay for 1.25
	// times as long. Output that only the kernel holds is checked once in that time, so such a
	// connection may stay for 2.25 times as long. While an event loop hears nothing from any peer,
	// these are up to 2 and 3 times.
	//
	// A kernel takes what it is sent in steps of up to half its receive buffer: set a time above that
	// which a slow peer needs for one step, 30s or more. Where the kernel does not count (not TCP, not
	// Linux), a peer counts as reading while it sends, or while its pending output changes: set
	// OutputLimit as well.
	WriteStallTimeout time.Duration

	// OutputLimit bounds what waits in the buffer of a connection because its peer does not take it.
	OutputLimit OutputLimit

	// MinRate bounds how slowly a message may come in.
	MinRate MinRate

	// Heartbeat makes the Reaper ask silent peers whether they are alive.
	Heartbeat Heartbeat

	// MaxAge is how long a connection may live; each has its own between a tenth less and a tenth more. When it is reached,
	// Goodbye is called, and after MaxAgeGrace the connection is closed, whatever it does.
	MaxAge, MaxAgeGrace time.Duration

	// OnIdle decides about an idle connection. gnet.Close reaps the connection. gnet.None keeps it: the
	// next event comes after another timeout, until the connection is active again. gnet.Shutdown stops
	// the engine. If nil, a connection that is read idle or all idle is reaped, and one that is write
	// idle stays.
	//
	// It may write to the connection, for example to ask the peer for a sign of life; that counts as
	// activity for WriteTimeout and AllTimeout. It must not block. Called on the loop goroutine of its
	// connection.
	OnIdle func(c gnet.Conn, ev Event) gnet.Action

	// Goodbye returns the last bytes for the peer of a connection that is being reaped, or nil. It is called before OnClose,
	// for MaxAge at the beginning of the grace, and not for a connection that is reset. It must not block, nor change what it
	// has returned. Called on the loop goroutine of its connection.
	Goodbye func(c gnet.Conn, reason *ReapError) []byte

	// Reset lists the reasons for which a connection is reset (RST) instead of closed after what is in the socket was sent
	// (FIN): the kernel frees its buffers at once, and the peer may lose what it has not read. If nil, these are WriteStall
	// and OverLimit. An empty list is none.
	Reset []Reason

	// MaxConnections is how many connections may be open, over all event loops of the Reaper. From fifteen sixteenths of it on those
	// that have been silent longest are closed to make room, first of those that MarkReady was not called for if HandshakeTimeout
	// is set; one that comes when there is none is refused: the handler does not hear of it. Held and exempt ones stay.
	MaxConnections int

	// ShedProtect is how long a connection must have been silent, and nothing sent to it, to be closed to make room. If zero, it is 1s.
	ShedProtect time.Duration

	// Refusal returns the last bytes for a connection that is refused, or nil. It must not change them afterwards. Called on the
	// loop goroutine of its connection.
	Refusal func(c gnet.Conn) []byte

	// ObserveOnly makes the Reaper count and log what it would close, and close nothing: see Stats.Observed. A connection for which
	// it has decided is not judged again, as if it were gone, until Update switches it off; until then events and heartbeats go on.
	ObserveOnly bool

	// KeepClosed is how many of the last reaped connections are kept for Query.Closed.
	KeepClosed int

	// TCPKeepAlive lets the kernel find dead peers as well: it sets the keepalive probes of TCP, and on Linux TCP_USER_TIMEOUT, so
	// that a peer that has vanished is noticed within about this time, whether the connection is silent or output waits. It
	// does not notice a process that hangs, and the reason is gnet's then. At least 8s.
	//
	// Below 30s it kills slow honest readers: TCP_USER_TIMEOUT also ends a connection whose peer keeps its receive window
	// closed for that long.
	TCPKeepAlive time.Duration

	// OutageGrace bounds how long verdicts about peers are put off because the server could not hear
	// them. An outage is a time in which the process was stopped, the machine was paused or the
	// network of the server was down. Peers that are silent after it are not closed before as much
	// time has passed since its end as it took, because they retransmit at growing intervals. While
	// nothing is heard any more from connections that were busy together, verdicts are held. If zero,
	// the grace is at most 2 minutes, and a hold ends two timeouts after the last byte. A positive
	// value bounds both. If negative, there is neither. See docs/verdict.md for the rules.
	OutageGrace time.Duration

	// Tick is the step in which deadlines are kept: a connection is judged at most two ticks after its timeout, never
	// before it. Each tick costs one wake-up of the process while there are connections. If zero, it is 100 ms; a tenth
	// of the shortest timeout where that is shorter, but at least 1 ms; and more for idle timeouts above 109 minutes, of
	// which it is the 65,536th part. Values below 1 ms, above the shortest timeout, and below a 1,048,576th of the longest
	// are refused. Update cannot change it.
	Tick time.Duration

	// Logger gets one debug record per reaped connection, one at level info for what ObserveOnly has spared, and a warning
	// where closing one fails. If nil, nothing is logged.
	Logger *slog.Logger
}

// OutputLimit bounds the output that waits in gnet's buffer of a connection, in bytes; what the kernel has taken is not
// counted. Redis has the same three in client-output-buffer-limit. Hard is checked after each OnTraffic and OnOpen of the
// connection. For output that other goroutines write, Hard is checked once a second, and Soft four times in SoftFor.
// While an event loop hears nothing from any peer, it is every eight seconds, and once in SoftFor.
type OutputLimit struct {
	Hard    int           // above it the connection goes at once
	Soft    int           // above it the connection goes after SoftFor
	SoftFor time.Duration // required with Soft
}

// MinRate is the least that must come in while a message is open: see [Reaper.BeginMessage]. It needs the counters of Linux
// and TCP; elsewhere nobody is too slow.
type MinRate struct {
	BytesPerSecond int
	Window         time.Duration // over which it is counted; 5s if zero
	Grace          time.Duration // from the beginning of a message to that of its first window
	Always         bool          // a message is always open, from accept on
}

// Heartbeat asks silent peers for a sign of life, from a server or from a client. A connection for which nothing came for
// Interval gets a ping; if still nothing comes, another after each Retry, MaxMissed in all; and one Retry after the last it
// is closed with [HeartbeatTimeout]. For example, 60s, 30s and 3: silent for 60 to 72 seconds, three pings 30 seconds apart, closed
// after 150 to 162 seconds; the 12 seconds are Jitter.
type Heartbeat struct {
	// Interval is the silence before the first ping.
	Interval time.Duration
	// Jitter is the greatest share of Interval that is added to it, so that connections that came
	// together are not asked together: each connection has a share of its own. If zero, it is 0.2. If
	// negative, nothing is added. At most 1.
	Jitter float64
	// Retry is the time from one ping to the next, and from the last to the end. If zero, it is Interval.
	Retry time.Duration
	// MaxMissed is how many pings in a row may stay without an answer, at most 15. If zero, it is 2.
	MaxMissed int
	// Ping returns the bytes of a ping, nil if it has sent one itself. It is required. It must not block. Called on the loop
	// goroutine of its connection.
	Ping func(c gnet.Conn) []byte
	// IsPong reports whether the bytes that have come are a sign of life; it may Peek at them. It is called before OnTraffic,
	// with new bytes and whatever was left before. If nil, any byte is one. For a protocol whose frames come in pieces leave
	// it out, or return false and call [Reaper.MarkAlive] from the handler.
	IsPong func(c gnet.Conn) bool
}

// A deadline is a duration of the Config that is counted in ticks.
type deadline struct {
	field fieldPath
	value time.Duration
}

// stamped returns the timeouts that are judged by the stamps of the coarse clock.
func (cfg *Config) stamped() []deadline {
	return []deadline{
		{"ReadTimeout", cfg.ReadTimeout},
		{"WriteTimeout", cfg.WriteTimeout},
		{"AllTimeout", cfg.AllTimeout},
		{"Heartbeat.Interval", cfg.Heartbeat.Interval},
	}
}

// durations returns the durations that are counted in ticks.
func (cfg *Config) durations() (all []deadline) {
	for s := range setting.All() {
		if s.Ticks {
			all = append(all, deadline{fieldPath(s.Field), time.Duration(s.Of(cfg).Int())})
		}
	}
	return all
}

// check returns the Config with its defaults filled in, or an error that joins all that is wrong with it. A tick that is not 0
// is that of the Reaper, which it cannot change.
func (cfg Config) check(tick time.Duration) (Config, error) {
	var c checker
	cfg.fill()
	c.ranges(&cfg)
	c.limits(&cfg)
	if !cfg.watches() {
		c.refuse("", "no limit is set, so no connection would ever be reaped: set one, for example %s to 60s", fieldPath("ReadTimeout"))
	}
	switch {
	case tick != 0 && cfg.Tick != 0 && cfg.Tick != tick:
		c.refuse("Tick", "%s is %v: Update cannot change it, it stays %v until the next start", fieldPath("Tick"), cfg.Tick, tick)
	case tick != 0:
		cfg.Tick = tick
	}
	if len(c.errs) == 0 {
		c.tick(&cfg)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return cfg, c.err()
}

// fill sets the defaults that depend on nothing else, and drops what belongs to a limit that is off.
func (cfg *Config) fill() {
	if cfg.Reset == nil {
		cfg.Reset = []Reason{WriteStall, OverLimit}
	}
	cfg.Reset = slices.Clone(cfg.Reset)
	if h := &cfg.Heartbeat; h.Interval != 0 {
		h.Retry = cmp.Or(h.Retry, h.Interval)
		h.MaxMissed = cmp.Or(h.MaxMissed, defaultMaxMissed)
		h.Jitter = cmp.Or(h.Jitter, firstPing)
	}
	if cfg.MinRate.BytesPerSecond != 0 {
		cfg.MinRate.Window = cmp.Or(cfg.MinRate.Window, defaultWindow)
	}
}

// watches reports whether there is anything to watch.
func (cfg *Config) watches() bool {
	for _, s := range cfg.durations() {
		if s.value != 0 {
			return true
		}
	}
	return cfg.OutputLimit.Hard != 0 || cfg.TCPKeepAlive != 0 || cfg.MaxConnections != 0
}

// timeouts returns those that SetTimeouts can change.
func (cfg *Config) timeouts() Timeouts {
	return Timeouts{Read: cfg.ReadTimeout, Write: cfg.WriteTimeout, All: cfg.AllTimeout}
}

// horizon returns the longest time in which a connection is not judged. It is the longest timeout that
// is judged by stamps, but never very short, and bounded, since the clock must remember as long.
func (cfg *Config) horizon() time.Duration {
	longest := minHorizon * cfg.Tick
	for _, s := range cfg.stamped() {
		longest = max(longest, s.value)
	}
	longest += verdict.Share(longest, max(cfg.Jitter, cfg.Heartbeat.Jitter, firstPing))
	return min(longest, maxHorizon*cfg.Tick)
}

// clockMemory returns how long the clock remembers its moves: long enough for a judgement that is
// late by a whole horizon.
func (cfg *Config) clockMemory() time.Duration { return 2 * cfg.horizon() }

// longest returns the longest limit of which a peer is the cause.
func (cfg *Config) longest() time.Duration {
	idle := max(cfg.ReadTimeout, cfg.AllTimeout)
	h := &cfg.Heartbeat
	return max(idle+verdict.Share(idle, cfg.Jitter), cfg.FirstByteTimeout, cfg.HandshakeTimeout, cfg.WriteStallTimeout,
		cfg.OutputLimit.SoftFor, cfg.MinRate.Window, h.Interval+time.Duration(h.MaxMissed)*h.Retry)
}

// slots returns how many slots a wheel needs so that the usual timeouts are less than one turn, up to a limit.
func (cfg *Config) slots() int {
	ticks := uint(cfg.horizon()/cfg.Tick) + 3 // the clock and the wheel round up, and now has a slot of its own
	return min(1<<bits.Len(ticks), maxSlots)
}

// A checker collects what is wrong with a Config.
type checker struct{ errs []error }

func (c *checker) refuse(field, format string, args ...any) {
	c.errs = append(c.errs, newConfigError(field, format, args))
}

func (c *checker) err() error { return errors.Join(c.errs...) }

// ranges checks each setting by itself.
func (c *checker) ranges(cfg *Config) {
	for s := range setting.All() {
		if v := s.Of(cfg); s.Mistake(v) != "" {
			c.refuse(s.Field, "%s is %v: %s", fieldPath(s.Field), v.Interface(), s.Mistake(v))
		}
	}
}

// limits checks settings that depend on each other.
func (c *checker) limits(cfg *Config) {
	const hard, soft, softFor = fieldPath("OutputLimit.Hard"), fieldPath("OutputLimit.Soft"), fieldPath("OutputLimit.SoftFor")
	switch o := cfg.OutputLimit; {
	case o.Soft > 0 && o.SoftFor == 0:
		c.refuse(string(soft), "%s is %d without %s: set how long output may stay above it", soft, o.Soft, softFor)
	case o.Soft == 0 && o.SoftFor != 0:
		c.refuse(string(softFor), "%s is %v without %s: set the bytes above which it counts", softFor, o.SoftFor, soft)
	case o.Hard > 0 && o.Soft > o.Hard:
		c.refuse(string(soft), "%s is %d, above %s, which is %d: set less", soft, o.Soft, hard, o.Hard)
	}
	c.rate(cfg.MinRate)
	c.heartbeat(cfg.Heartbeat)
	if cfg.MaxAgeGrace != 0 && cfg.MaxAge == 0 {
		c.refuse("MaxAgeGrace", "%s is %v without %s: set both", fieldPath("MaxAgeGrace"), cfg.MaxAgeGrace, fieldPath("MaxAge"))
	}
	for _, k := range cfg.Reset {
		if !k.valid() {
			c.refuse("Reset", "%s has %v, which is no reason", fieldPath("Reset"), k)
		}
	}
}

func (c *checker) rate(r MinRate) {
	const rate = fieldPath("MinRate.BytesPerSecond")
	switch {
	case r.BytesPerSecond == 0 && r != (MinRate{}):
		c.refuse(string(rate), "%s is not set: set the bytes per second that a message needs", rate)
	case r.Window > 0 && r.BytesPerSecond > math.MaxInt32/int(max(r.Window/time.Second, 1)):
		c.refuse(string(rate), "%s is %d for %v: set less than 2 GiB in a window", rate, r.BytesPerSecond, r.Window)
	}
}

func (c *checker) heartbeat(h Heartbeat) {
	const interval, ping = fieldPath("Heartbeat.Interval"), fieldPath("Heartbeat.Ping")
	switch {
	case h.Interval == 0 && (h.Retry != 0 || h.MaxMissed != 0 || h.Jitter != 0 || h.Ping != nil || h.IsPong != nil):
		c.refuse(string(interval), "%s is not set: set how long the peer may be silent before it gets a ping", interval)
	case h.Interval != 0 && h.Ping == nil:
		c.refuse(string(ping), "%s is nil: set the func that returns the bytes of a ping", ping)
	}
}

// tick chooses the tick, or checks the one that is set.
func (c *checker) tick(cfg *Config) {
	shortest, longest := deadline{value: maxTimeout}, deadline{}
	for _, s := range cfg.durations() {
		if s.value > 0 && s.value < shortest.value {
			shortest = s
		}
		if s.value > longest.value {
			longest = s
		}
	}
	least := max(longest.value/maxTicks+1, minTick)
	chosen := cfg.Tick != 0
	if !chosen {
		cfg.Tick = max(min(defaultTick, shortest.value/10), least)
	}
	const tick = fieldPath("Tick")
	switch {
	case cfg.Tick > shortest.value && chosen:
		c.refuse(string(shortest.field), "%s is %v, longer than %s of %v: set a longer timeout, or a tick of a tenth of it",
			tick, cfg.Tick, shortest.field, shortest.value)
	case cfg.Tick > shortest.value:
		c.refuse(string(shortest.field), "%s is %v and %s is %v, too far apart for one tick: set a longer or a shorter one",
			shortest.field, shortest.value, longest.field, longest.value)
	case cfg.Tick < least:
		c.refuse(string(longest.field), "%s is %v, more than %d times %s of %v: set a shorter timeout, or a tick of at least %v",
			longest.field, longest.value, maxTicks, tick, cfg.Tick, least)
	}
}
