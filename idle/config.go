package idle

import (
	"log/slog"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// Config says when a connection is closed, and what happens then. Each limit is off if it is zero;
// at least one must be set. Negative values are refused, except where a field says what they mean.
// [Middleware] copies the Config; [Reaper.Update] changes it. Functions are called on the loop
// goroutine of their connection and must not block.
type Config struct {
	// ReadTimeout is how long the peer may send nothing. Then the connection is read idle: OnIdle
	// decides, or it is reaped.
	ReadTimeout time.Duration

	// WriteTimeout is how long nothing may be sent to the peer. Then the connection is write idle:
	// OnIdle decides, or the event is only counted. Bytes count when the kernel sends them, see
	// "What counts as a write" in the package comment.
	WriteTimeout time.Duration

	// AllTimeout is how long nothing may be sent in either direction. Then the connection is all
	// idle: OnIdle decides, or it is reaped.
	AllTimeout time.Duration

	// Jitter spreads the three idle timeouts, so that connections that were opened together are not
	// closed together: up to this part of a timeout is added, the same part for each timeout of a
	// connection. At most 1, which doubles the timeout.
	Jitter float64

	// OnIdle decides about an idle connection. gnet.Close reaps the connection. gnet.None keeps it:
	// the next event comes after another timeout, until the connection is active again.
	// gnet.Shutdown stops the engine. If nil, a connection that is read idle or all idle is reaped,
	// and one that is write idle stays.
	//
	// It may write to the connection, for example to ask the peer for a sign of life; that counts
	// as activity for WriteTimeout and AllTimeout.
	OnIdle func(c gnet.Conn, ev Event) gnet.Action

	// FirstByteTimeout is how long the peer may take to send its first byte. One that came before
	// the connection was enrolled in an engine counts, where the kernel tells.
	FirstByteTimeout time.Duration

	// HandshakeTimeout is how long it may take until the handler calls [Conn.Ready]. Bytes do not
	// extend it. The other limits and heartbeats apply during the handshake too.
	HandshakeTimeout time.Duration

	// WriteStallTimeout is how long output may wait while the peer takes none of it. Output in
	// gnet's buffer is checked four times in that time, so a stalled connection may stay for 1.25
	// times as long. Output that only the kernel holds is checked once in that time, so such a
	// connection may stay for 2.25 times as long. While an event loop hears nothing from any peer,
	// these are up to 2 and 3 times.
	//
	// Kernels take bytes in steps of up to half their receive buffer: set a longer time than a slow
	// peer needs for one step, 30s or more. Where the kernel does not count (not TCP, not Linux), a
	// peer counts as reading while it sends, or while its pending output changes: set OutputLimit
	// as well.
	WriteStallTimeout time.Duration

	// OutputLimit bounds the output that waits because the peer does not take it.
	OutputLimit OutputLimit

	// OutputMarks tell producers to stop and to go on, so that no output grows without bound.
	OutputMarks OutputMarks

	// MinRate bounds how slowly a message may come in, see [Conn.BeginMessage]. It needs the
	// counters of Linux and TCP; elsewhere it does nothing. If MinRate.Window is zero, it is 5s.
	MinRate MinRate

	// Heartbeat asks silent peers for a sign of life.
	Heartbeat Heartbeat

	// MaxAge is how long a connection may live, randomized by ±10 % per connection. Then Goodbye
	// is called, and after MaxAgeGrace the connection is closed, whatever it does.
	MaxAge, MaxAgeGrace time.Duration

	// Goodbye returns the last bytes for the peer of a connection that is being reaped, or nil. It
	// is called before OnClose, or at the beginning of MaxAgeGrace. It is not called for a
	// connection that is reset. It must not change the bytes afterwards.
	Goodbye func(c gnet.Conn, reason *ReapError) []byte

	// ReconnectSpread is the time over which the clients of a drain should connect again, so that
	// the servers that go on get them one by one. [ReapError] has a part of it for each client, and
	// Goodbye can tell it. Choose the clients of a drain divided by the new connections that the
	// other servers take in a second. If zero, there is no suggestion.
	ReconnectSpread time.Duration

	// Reset lists the reasons for which a connection is reset (RST) instead of closed (FIN). A
	// reset frees the buffers of the kernel at once, and the peer may lose bytes that it has not
	// read. If nil, these are WriteStall and OverLimit. An empty list is none.
	Reset []Reason

	// MaxConnections is the limit of open connections, over all event loops of the Reaper. From
	// fifteen sixteenths of it on, the connections that have been silent longest are closed to make
	// room; with HandshakeTimeout, connections still in the handshake come first. If there is no
	// room, a new connection is refused: the handler is not told of it. Held and exempt connections
	// stay.
	MaxConnections int

	// ShedProtect is how long a connection must have been silent, in both directions, before it is
	// closed to make room. If zero, it is 1s.
	ShedProtect time.Duration

	// Refusal returns the last bytes for a connection that is refused, or nil. It must not change
	// them afterwards.
	Refusal func(c gnet.Conn) []byte

	// ObserveOnly makes the Reaper count and log the connections that it would close, and close
	// none: see Stats.Observed. A connection is counted once, and not judged again until Update
	// switches ObserveOnly off. Events and heartbeats of other connections go on.
	ObserveOnly bool

	// KeepClosed is how many of the connections that were reaped last are kept for Query.Closed.
	KeepClosed int

	// TCPKeepAlive makes the kernel look for dead peers too. It sets the keepalive probes of TCP,
	// and on Linux TCP_USER_TIMEOUT, so that a peer that has vanished is noticed within about this
	// time, whether the connection is silent or output waits. OnClose gets the error of gnet then.
	// A process that hangs is not noticed. At least 8s.
	//
	// Below 30s it closes slow honest readers: TCP_USER_TIMEOUT also ends a connection that keeps
	// its receive window closed for that long.
	TCPKeepAlive time.Duration

	// OutageGrace bounds how long verdicts are postponed after the server could not hear its
	// peers. An outage is a time in which the process was stopped, the machine was paused or the
	// network of the server was down. A peer that is silent after an outage is closed only when it
	// has had a chance to be heard: as much time as the outage took, because peers retransmit at
	// growing intervals, and an eighth of the timeout. If connections that were busy all fall silent
	// together, verdicts are suspended. If zero, a chance is at most 2 minutes long, and a
	// suspension ends two timeouts after the last byte. A positive value bounds both. A negative
	// value switches both off. See docs/verdict.md for the rules.
	OutageGrace time.Duration

	// Tick is the step in which deadlines are kept: a connection is judged at most two ticks after
	// its timeout, and never before. Each tick wakes the process once while there are connections.
	// If zero, it is a 200th of the shortest timeout, but 20 to 100 ms, at most a tenth of that
	// timeout, and at least 1 ms.
	// A Tick must be at least 1 ms, at most the shortest timeout, and at least a 2^30th of the
	// longest. Update cannot change it.
	Tick time.Duration

	// Logger gets a debug record per reaped connection, an info record per connection that
	// ObserveOnly has spared, and warnings, each at most once a second. If nil, warnings go to
	// slog.Default().
	//
	// A goroutine of its own writes the records, so a Logger that blocks blocks no event loop. Of
	// more than 1,024 records that wait, the newest are dropped, and a warning tells how many. The
	// last records may not be written yet when gnet.Run returns; those of package server are.
	Logger *slog.Logger
}

// OutputLimit bounds the output in gnet's buffers, in bytes. Output that the kernel has taken does
// not count. Hard and Soft are for each connection; Redis has the same in
// client-output-buffer-limit. Total is for all connections of the Reaper together.
//
// One answer may be larger than Hard. If one call of OnTraffic or OnOpen adds more than Hard to a
// connection with less, or all writes between two checks do, the peer gets time: it must take Hard
// bytes, 1 MiB at most, in each ten seconds until no more than Hard waits. More than Hard on top of
// the least that has waited closes the connection at once, such as a second large answer. Small
// answers may follow a large one, until half of Hard waits. Times in which the server stood still
// or the event loop was blocked do not count. So set Hard to what your slowest client takes in ten
// seconds, above the answers to small requests that a client may send at once.
//
// Hard and Total are checked after each OnTraffic and OnOpen. For output that other goroutines
// write, they are checked once a second, and Soft four times in SoftFor; while an event loop hears
// nothing from any peer, every eight seconds, and once in SoftFor. While more than half of Total is
// in use, Total is checked in each tick.
//
// Set Total wherever a peer may make the server write: a peer that sends requests and reads no
// answer fills the memory otherwise, and no timeout is fast enough. A buffer takes up to twice the
// memory of its bytes, and more if a handler writes answers of a few bytes one by one, so a quarter
// of the memory of the process is a good value. Package server sets it so.
type OutputLimit struct {
	Hard    int           // above it the connection is closed at once, unless one answer was larger
	Soft    int           // above it the connection is closed after SoftFor
	SoftFor time.Duration // required with Soft

	// Total is the limit of all connections together, at least Hard and Soft. Above it, the
	// connections with the most output are closed, until a sixteenth of Total is free. An event
	// loop that is busy may be late with that. So from nine eighths of Total on, each event loop
	// closes the largest of its own connections, even if another loop has larger ones. If negative,
	// there is no limit, also with package server.
	Total int
}

// Heartbeat asks silent peers for a sign of life, from a server or from a client. A peer that sends
// nothing for Interval gets a ping, whatever is sent to it. If it stays silent, another ping
// follows after each Retry, MaxMissed in all. One Retry after the last ping the connection is
// closed with the reason reap.HeartbeatTimeout.
//
// For example, with 60s, 30s and 3: after 60 to 72 seconds of silence (12 seconds are Jitter) three
// pings are sent 30 seconds apart, and the connection is closed after 150 to 162 seconds. Retry
// counts from when a ping was sent, so each ping may add a tick. ReadTimeout and AllTimeout, if
// they are set, should be longer than the whole, 162 seconds here: otherwise they close the
// connection before the last ping, or before the first one. If ReadTimeout leaves no time for any
// ping, a warning is logged: only held connections are pinged, and those with limits of their own.
// The zero Heartbeat is off.
type Heartbeat struct {
	// Interval is the silence before the first ping. If zero, heartbeats are off, whatever the
	// other fields are.
	Interval time.Duration
	// Jitter spreads the pings of connections that were opened together: up to this part of
	// Interval is added, a part of its own for each connection. If zero, it is 0.2. If negative,
	// nothing is added. At most 1.
	Jitter float64
	// Retry is the time from one ping to the next, and from the last one to the close. If zero, it
	// is Interval.
	Retry time.Duration
	// MaxMissed is the number of pings in a row that may stay without an answer, at most 15. If
	// zero, it is 2.
	MaxMissed int
	// Ping returns the bytes of a ping, or nil if it has sent a ping itself. It is required.
	Ping func(c gnet.Conn) []byte
	// IsPong reports whether the bytes that have come are a sign of life; it may Peek at them. It
	// is called before OnTraffic, with new bytes and the bytes left over before. If nil, any byte
	// is a sign of life. If the frames of the protocol come in pieces, leave it nil, or return
	// false and call [Conn.Alive] from the handler.
	IsPong func(c gnet.Conn) bool
}
