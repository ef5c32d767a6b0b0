package idlenet

import (
	"log/slog"
	"net"
	"time"

	"github.com/idlewheel/idlewheel/sourcelimit"
)

// Config says when a connection ends, and what happens then. It has the names and units of
// idle.Config. Each limit is off if it is zero; at least one must be set. Negative values are
// refused, except where a field says what they mean. [Listen] copies the Config;
// [Reaper.Update] changes it.
//
// OnIdle and OnReap are called on one goroutine of the Reaper, one after the other. They must not
// block: all checks wait for them, and a wait above a tenth of the shortest timeout counts as
// an outage of the server.
type Config struct {
	// ReadTimeout is how long the peer may send nothing. Then the connection is read idle: OnIdle
	// decides, or it ends.
	ReadTimeout time.Duration

	// WriteTimeout is how long nothing may be sent to the peer. Then the connection is write idle:
	// OnIdle decides, or the event is only counted.
	WriteTimeout time.Duration

	// AllTimeout is how long nothing may be sent in either direction. Then the connection is all
	// idle: OnIdle decides, or it ends. A program that reads slowly from the buffer of its own
	// kernel sends nothing meanwhile: set a longer time than the largest answer needs.
	AllTimeout time.Duration

	// Jitter adds up to this part to the three idle timeouts, the same part for each timeout of a
	// connection. At most 1, which doubles the timeout.
	Jitter float64

	// OnIdle decides about an idle connection. Close ends it. Keep keeps it: the next event comes
	// after another timeout, until the connection is active again. If nil, a connection that is
	// read idle or all idle ends, and one that is write idle stays.
	OnIdle func(c net.Conn, ev Event) Action

	// OnReap is told that a connection ends, and why. The code of the server that serves it finds
	// the same error with [Reaper.Reason].
	OnReap func(c net.Conn, reason *ReapError)

	// FirstByteTimeout is how long the peer may take to send its first byte.
	FirstByteTimeout time.Duration

	// HandshakeTimeout is how long it may take until [Conn.Ready] is called, or
	// a server of [Reaper.AttachHTTP] has the first request. Bytes do not extend it.
	HandshakeTimeout time.Duration

	// WriteStallTimeout is how long output may wait in the kernel while the peer takes none of it.
	// It is checked once in that time, and four times while output waits, so a stalled connection
	// may stay for 2.25 times as long. Kernels take bytes in steps of up to half their receive
	// buffer: set a longer time than a slow peer needs for one step, 30s or more.
	WriteStallTimeout time.Duration

	// MinRate bounds how slowly a message may come in, see [Conn.BeginMessage]. It needs the
	// counters of Linux and TCP. If MinRate.Window is zero, it is 5s.
	MinRate MinRate

	// HalfClosedTimeout is how long a connection may stay after its peer has ended its side (FIN),
	// or reset it, and the server has not closed it. HAProxy calls it client-fin. The kernel is
	// asked four times in that time, so a connection may stay for 1.25 times as long. It needs TCP
	// on Linux.
	HalfClosedTimeout time.Duration

	// Heartbeat asks silent peers for a sign of life. It does not apply to a connection that
	// net/http serves, see [Reaper.ConnState], until the connection is hijacked.
	Heartbeat Heartbeat

	// MaxAge is how long a connection may live, randomized by ±10 % per connection. Then Goodbye is
	// called, and after MaxAgeGrace the connection ends, whatever it does.
	MaxAge, MaxAgeGrace time.Duration

	// Goodbye tells the peer that the connection ends after reason.Grace. It is called when MaxAge
	// has passed, on a goroutine of its own, and may write to the connection if the protocol allows
	// that. With MaxAge it is an error if MaxAgeGrace is not set too. Unlike the one of idle.Config
	// it is not called before other ends, because the server can still write when its Read has
	// failed.
	Goodbye func(c net.Conn, reason *ReapError)

	// CloseGrace is the time that the server gets to close a connection that has ended, see "How a
	// connection ends" in the package comment. After it the Reaper closes the connection. Times
	// in which the process was stopped do not count. An HTTP/2 connection of AttachHTTP needs two
	// seconds of it for its GOAWAY. If zero, it is 5s.
	CloseGrace time.Duration

	// Reset lists the reasons for which a connection is reset (RST) at once, without CloseGrace. A
	// reset frees the buffers of the kernel, and the peer may lose bytes that it has not read. If
	// nil, this is WriteStall: its server is blocked in a Write, which no read deadline ends. An
	// empty list is none.
	Reset []Reason

	// MaxConnections is the limit of open connections. When it is reached, of 64 connections the
	// one that has been silent longest ends. If there is none that may end, the new connection is
	// closed, and Accept waits for the next one. Held connections stay. Goroutines that are in
	// Accept or Admit together may exceed the limit by one each.
	MaxConnections int

	// WaitForRoom makes new connections wait at MaxConnections, instead of being closed: Accept
	// returns when there is room, and clients stay in the queue of the kernel until then.
	WaitForRoom bool

	// ShedProtect is how long a connection must have been silent before it ends to make room. If
	// zero, it is 1s.
	ShedProtect time.Duration

	// Sources limits the connections of each source, and how fast it opens new ones; AcceptRate is
	// the limit of new connections per second of all sources, on average, and twice as many may
	// arrive at once. A connection above a limit is closed before Accept returns it. The address is
	// that of the socket, also if a PROXY header tells another one. Update cannot change them, and
	// returns an error.
	Sources    sourcelimit.Limits
	AcceptRate int

	// ObserveOnly counts and logs the connections that would end, and ends none: see
	// Stats.Observed. A connection is counted once, and not judged again until Update switches
	// ObserveOnly off.
	ObserveOnly bool

	// KeepClosed is how many of the connections that ended last are kept for [Reaper.Inspect].
	KeepClosed int

	// TCPKeepAlive makes the kernel look for dead peers too, as in idle.Config. At least 8s.
	TCPKeepAlive time.Duration

	// OutageGrace bounds how long verdicts are postponed after the server could not hear its
	// peers, as in idle.Config. If negative, they are not postponed.
	OutageGrace time.Duration

	// Tick is the step in which deadlines are kept: a connection is judged at most two ticks after
	// its timeout, and never before. Each tick wakes the process once while there are connections:
	// with a timeout of 30 s, a tick of a second halves the processor time of the Reaper. If zero,
	// it is a 200th of the shortest timeout, but 20 to 100 ms, at most a tenth of that timeout, and
	// at least 1 ms. Update cannot change it.
	Tick time.Duration

	// Unwrap returns the connection inside one that has no method NetConn, such as those of
	// golang.org/x/net/netutil, of proxies and of multiplexers of others, or nil if there is none.
	// Otherwise such a connection is not watched. It is called on any goroutine. Update does not
	// change it. A type that embeds a *net.TCPConn needs none, but its RemoteAddr must not block,
	// as one that waits for a PROXY header does: Accept calls it.
	Unwrap func(c net.Conn) net.Conn

	// Stamp wraps each connection that Accept returns, to note when its Read returned bytes. It is
	// for connections of which the kernel does not tell when bytes arrived: unix sockets, and
	// systems other than Linux. The wrapper hides the methods of the connection, such as those that
	// sendfile needs; its NetConn returns the connection.
	Stamp bool

	// Logger gets a debug record per connection that ends, an info record per connection that
	// ObserveOnly has spared, and warnings, each at most once a second. If nil, warnings go to
	// slog.Default().
	Logger *slog.Logger
}

// An Action is the answer of Config.OnIdle.
type Action int

// The actions.
const (
	Keep  Action = iota // the connection stays
	Close               // the connection ends
)

// Heartbeat asks silent peers for a sign of life. A peer that sends nothing for Interval gets a
// ping. If it stays silent, another ping follows after each Retry, MaxMissed in all. One Retry
// after the last ping the connection ends with the reason reap.HeartbeatTimeout. ReadTimeout, if it
// is set, should be longer than the whole. If it leaves no time for any ping, a warning is logged.
// The zero Heartbeat is off.
type Heartbeat struct {
	// Interval is the silence before the first ping. If zero, heartbeats are off, whatever the
	// other fields are.
	Interval time.Duration
	// Jitter adds up to this part to Interval, a part of its own for each connection. If zero, it
	// is that of idle.Heartbeat. If negative, nothing is added. At most 1.
	Jitter float64
	// Retry is the time from one ping to the next, and from the last one to the end. If zero, it is
	// Interval.
	Retry time.Duration
	// MaxMissed is the number of pings in a row that may stay without an answer, at most 15. If
	// zero, it is 2.
	MaxMissed int
	// Ping sends a ping. It is required. It is called on a goroutine of its own, so it may block in
	// Write, which ends at the latest when the connection does. While it blocks, it is not called
	// again. The protocol must allow a write besides those of the server.
	Ping func(c net.Conn)
}
