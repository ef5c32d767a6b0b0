package watch

import (
	"net"
	"net/netip"
	"time"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/wheel"
)

// A Shard has a part of the connections. C is what the front end keeps of a connection. Not safe
// for concurrent use: see "Ownership" in the package comment.
type Shard[C any] struct {
	// Immutable.
	Watcher *Watcher
	Number  uint32 // from 1
	clock   *mono.Clock
	port    Port[C]
	finder  Finder[C] // the same front end, nil if it is told of each close
	asks    bool      // Form.AsksFirst

	Counters Counters
	Set      *Settings // that are followed
	Open     int       // connections
	Halted   bool      // the engine stops and closes all connections: none is looked at
	Schedule Schedule
	Ends     Ends
	Outages  Outages

	LeastSilence mono.ShortStamp // moves of the clock in the shortest silence for EndSilence
	silences     silences

	Groups   samples[C]
	conns    slab[Conn[C]]
	limits   limitsTable
	Remotes  Remotes[C]        // of SetRemote
	early    map[uint32]uint32 // the last Evidence.Early of connections that had one
	Large    Larges            // outputs of connections
	evidence verdict.Evidence  // about the connection in hand
	facts    verdict.Facts     // about the connection that is looked at
	rearmed  verdict.Facts     // about the connection that Rearm or File judges

	previous *Settings // by which all connections were judged before Set
	adapted  uint32    // number of the first connection that is not adapted to Set yet
	toAdapt  uint32    // number after the last such connection
}

// A Conn is the state of a connection.
type Conn[C any] struct {
	connstate.State
	timer   wheel.Handle
	longest longest
	Front   C
}

// A Port is the front end of a Shard. Its methods are called on the owner of the Shard, by a look
// or a rearm only, never for a message.
type Port[C any] interface {
	// Record returns the record of a connection. It is valid until the next call of a handler.
	Record(c *Conn[C]) *conntable.Record
	// Ask asks the kernel about a connection. It reports false if the connection is closed.
	Ask(c *Conn[C], ev *verdict.Evidence) (open bool)
	// Output returns how many bytes of output the buffer of the event loop has.
	Output(c *Conn[C]) int
	// Remote returns the address of the peer of the socket.
	Remote(c *Conn[C]) net.Addr
	// Path returns the addresses of both ends of the socket.
	Path(c *Conn[C]) (local, remote netip.Addr)
	// Heard returns when the peer was heard last, as far as that is known without waiting bytes.
	Heard(c *Conn[C], now mono.Time) mono.Time
	// Learned is called with each answer of the kernel. It says whether the peer was heard later
	// than the Shard knew.
	Learned(c *Conn[C], heard bool, ev *verdict.Evidence, now mono.Time)

	// Raise counts an idle event and calls OnIdle. It reports true if the connection is to be
	// closed, for the reason.
	Raise(id uint32, c *Conn[C], ev reap.Event, reason *reap.Error) (end bool)
	// Ping reports false if an earlier ping was not sent yet.
	Ping(id uint32, c *Conn[C]) (sent bool)
	// Farewell tells the peer that the connection ends after reason.Grace.
	Farewell(c *Conn[C], reason *reap.Error)
	// Close closes a connection, or makes its server close it.
	Close(id uint32, c *Conn[C], reason *reap.Error)

	// SetKeepAlive changes the keepalive probes of the kernel.
	SetKeepAlive(c *Conn[C], d time.Duration)
	// CountBusy counts the connections that were heard last in a period.
	CountBusy(c *outage.Count)
}

// A Finder is a Port that must find out which connections are closed. No event tells it.
type Finder[C any] interface {
	// LookAtEnded looks at a connection with an End. It returns the time of the next look, or false
	// if the connection is to be forgotten.
	LookAtEnded(id uint32, c *Conn[C], e *End, now mono.Time) (next mono.Time, keep bool)
	// Drop forgets a connection that is closed.
	Drop(id uint32, c *Conn[C])
}

// Init makes a Shard ready. Numbers count from 1.
func (s *Shard[C]) Init(w *Watcher, number uint32, port Port[C]) {
	set := w.Settings()
	s.Watcher, s.Number, s.clock, s.port, s.asks = w, number, &w.Clock, port, w.form.AsksFirst
	s.finder, _ = port.(Finder[C])
	s.Schedule.init(&w.Clock, set.Tick, !s.asks, s.Look)
	s.Ends, s.early = Ends{w, make(map[uint32]*End)}, make(map[uint32]uint32)
	s.Large = make(Larges)
	s.Remotes = make(Remotes[C])
	s.limits = limitsTable{all: make([]*Limits, 1), uses: make([]uint32, 1), index: make(map[reap.ConnLimits]uint16)}
	s.Outages = Outages{watcher: w, count: port.CountBusy, followed: w.Monitor.State()}
	s.silences.began = s.clock.Elapsed()
	s.Groups.shard, s.Groups.names = s, make(map[uint32]string)
	s.Follow(set)
}

// Take returns a connection that is new, and its number. The caller sets Front, and calls File. The
// first connection finds the settings in force.
func (s *Shard[C]) Take(now mono.Time) (id uint32, c *Conn[C]) {
	if s.Open == 0 && s.asks { // another front end does more than that, before
		s.Follow(s.Watcher.Settings())
	}
	id, c = s.conns.take(uint32(s.clock.Pack(now)))
	c.State.Open(s.clock, s.Set.Common.Rate, now)
	return id, c
}

// File makes the kernel look for a dead peer, if that is set, and schedules the first look at a
// connection.
func (s *Shard[C]) File(id uint32, c *Conn[C], now mono.Time) {
	if d := s.Set.TCPKeepAlive; d > 0 {
		s.port.SetKeepAlive(c, d)
	}
	s.rearmed = s.Facts(id, c, now)
	next := s.clock.Read()
	if v := s.Set.Common.Judge(&s.rearmed, &s.Outages.away, next); v.Act == verdict.Wait {
		next = v.Next // otherwise the process was stopped in between
	}
	c.timer = s.Schedule.add(id, next)
	s.Open++
	s.Counters.Opened++
}

// Remove forgets a connection that is closed.
func (s *Shard[C]) Remove(id uint32, c *Conn[C]) {
	if s.Ends.Of(id) != nil || c.Is(connstate.Observed) {
		s.Watcher.Decided.Add(-1)
	}
	s.Counters.Closed++
	s.Watcher.Open.Add(-1)
	s.Schedule.wheel.Cancel(c.timer)
	s.limits.put(c.LimitsID)
	delete(s.Ends.all, id)
	delete(s.early, id)
	delete(s.Large, id)
	delete(s.Groups.names, id)
	delete(s.Remotes, c)
	s.conns.put(id, uint32(c.Opened()))
	if s.Open--; s.Open == 0 {
		s.Groups.end()
	}
}

// Count returns the counters, with what there is now.
func (s *Shard[C]) Count() *Counters {
	s.Counters.Connections, s.Counters.Entries = s.Open, s.Schedule.Len()
	return &s.Counters
}

// Random returns a number from 0 to 1 that stays the same for the life of a connection. Connections
// of other shards with the same id have others: a drain closes them at other instants.
func (s *Shard[C]) Random(id uint32, c *Conn[C]) float64 { return c.Random(id + s.Number*0x9e3779b1) }

// At returns the connection with a number.
func (s *Shard[C]) At(id uint32) *Conn[C] { return s.conns.at(id) }

// Len returns a number above those of all connections.
func (s *Shard[C]) Len() uint32 { return s.conns.taken }

// LimitsOf returns the limits of a connection.
func (s *Shard[C]) LimitsOf(c *Conn[C]) *Limits { return s.limits.at(c.LimitsID, s.Set) }

// SetLimits gives a connection limits of its own.
func (s *Shard[C]) SetLimits(id uint32, c *Conn[C], own reap.ConnLimits) error {
	own, err := s.Set.checkOwn(own)
	if err != nil {
		return err
	}
	s.adaptNow(id, c) // later its limits before the Update are not known
	old := s.LimitsOf(c)
	number, err := s.limits.take(s.Set, own)
	if err != nil {
		return err
	}
	s.limits.put(c.LimitsID)
	c.LimitsID = number
	s.Watcher.extendRule(&own)
	c.Adapt(s.clock, &old.Limits, &s.LimitsOf(c).Limits)
	s.Rearm(id, c)
	return nil
}

// Facts returns what is known of a connection at an instant of the real clock. It changes nothing.
func (s *Shard[C]) Facts(id uint32, c *Conn[C], now mono.Time) verdict.Facts {
	lim, output := s.LimitsOf(c), 0
	if lim.PollOutput() > 0 || lim.Drain != (verdict.Drain{}) {
		output = s.port.Output(c)
	}
	f := c.State.Facts(s.clock, s.port.Record(c), &lim.Limits, output, now)
	f.Random, f.Large = s.Random(id, c), s.Large[id]
	return f
}

// Rearm moves the deadline of a connection in the wheel forward, after a change of its state. It
// never moves the deadline back: otherwise frequent calls would put off the checks of output for
// ever. If the deadline is later now, the next look finds that.
func (s *Shard[C]) Rearm(id uint32, c *Conn[C]) {
	switch {
	case s.Ends.Of(id) != nil: // the next look at it has another purpose
		return
	case s.asks: // what is known may be old
		s.Soon(c)
		return
	}
	s.rearmed = s.Facts(id, c, s.clock.Elapsed())
	now := s.clock.Read()
	next := now
	if v := (looker[C]{s}).judge(id, c, &s.rearmed, &s.Outages.away, now); v.Act == verdict.Wait {
		next = v.Next
	}
	s.Schedule.by(c.timer, next)
}

// Soon makes the next tick look at a connection.
func (s *Shard[C]) Soon(c *Conn[C]) { s.Schedule.by(c.timer, s.clock.Read()) }

// Larges are the large outputs of a Shard, by the number of the connection. As safe for concurrent
// use as the Shard.
type Larges map[uint32]verdict.Large

// Allows reports whether more output than the hard limit may wait for a connection after a call of
// its handler. It may if the call has added a [verdict.Large], or if there was one before, which
// another goroutine may have added since the last check. Then check checks the connection.
func (all Larges) Allows(id uint32, before, output, hard int, check func()) bool {
	if output-before > hard && before <= hard {
		delete(all, id) // so that the check begins a new one
	}
	if l := all[id]; l.Since == 0 && max(before, output-before) > hard {
		check()
	}
	l := all[id]
	return l.Since != 0 && output <= l.Least+hard
}

func (all Larges) keep(id uint32, l verdict.Large) {
	if l == (verdict.Large{}) {
		delete(all, id)
	} else {
		all[id] = l
	}
}
