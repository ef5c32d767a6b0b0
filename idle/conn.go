package idle

import (
	"fmt"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/conntable"
)

// A Conn is the Reaper's part of one connection: with it a handler tells the Reaper what bytes
// cannot tell. [Reaper.Conn] returns it.
//
// All methods are called on the loop goroutine of the connection, see "Goroutines" in the package
// comment. A handler may keep the Conn. For the Conn the connection is closed when OnClose is
// called: from then on the methods do nothing, ID is empty, and SetTimeouts returns
// [ErrNotWatched]. The zero Conn is that of a closed connection.
type Conn struct {
	loop *loop
	own  gnet.Conn // gnet's own, kept so that no other connection can have its address
	id   uint32
}

// Conn returns the handle of a connection. It reports false if the Reaper does not watch the
// connection: it is closed, or it is a datagram socket. Called on the loop goroutine of c.
func (r *Reaper) Conn(c gnet.Conn) (Conn, bool) {
	l := r.registry.Load().find(c.EventLoop())
	if l == nil {
		return Conn{}, false
	}
	own, record, id := l.seek(c)
	if record == nil || !isOf(l.At(id), own) {
		if isForeign(own) {
			r.warnForeign(own)
		}
		return Conn{}, false
	}
	l.layers.set(l.At(id), c)
	return Conn{l, own, id}, true
}

// state returns the state of the connection, nil if it is closed.
func (c Conn) state() *conn {
	if c.loop == nil {
		return nil
	}
	if s := c.loop.At(c.id); isOf(s, c.own) {
		return s
	}
	return nil
}

// change calls a function with the state of the connection, unless it is closed. It makes the next
// task of the loop come in time after a change.
func (c Conn) change(do func(l *loop, id uint32, s *conn)) {
	if s := c.state(); s != nil {
		do(c.loop, c.id, s)
		c.loop.plan()
	}
}

// ID returns the name of the connection for [Reaper.Kick] and reports. It is empty if the
// connection is closed: to log it in OnClose, save it in OnOpen.
func (c Conn) ID() ConnID {
	if s := c.state(); s != nil {
		return c.loop.ID(c.id, s)
	}
	return ""
}

// SetRemote sets the address that logs and [Reaper.Inspect] show, for a connection that comes
// through a proxy. If addr is nil, it is the address of the socket again.
func (c Conn) SetRemote(addr net.Addr) {
	if s := c.state(); s != nil {
		c.loop.Remotes.Set(s, addr)
	}
}

// SetGroup says that the connection shares a part of the way to its peer with all connections of
// the same name: an upstream, a zone, a proxy. If all of them that were busy fall silent together,
// verdicts about their peers are suspended, as they are if all connections of the server do.
// Connections with the same address on either side, or from the same network, are grouped without
// it. An empty name takes the connection out of its group.
func (c Conn) SetGroup(name string) {
	if c.state() != nil {
		c.loop.Groups.SetName(c.id, name)
	}
}

// Ready ends the handshake: Config.HandshakeTimeout does not apply any more.
func (c Conn) Ready() {
	if c.state() != nil {
		record, _ := c.loop.table.Find(key(c.own))
		record.Set(conntable.Ready, true)
	}
}

// Alive says that the peer gave a sign of life, as an answer to [Heartbeat], that IsPong cannot
// see.
func (c Conn) Alive() {
	c.change(func(l *loop, id uint32, s *conn) {
		s.Alive(l.clock)
		l.Rearm(id, s)
	})
}

// Touch restarts the idle timeouts, as if bytes had passed in both directions, and the time to the
// next ping, unless Heartbeat.IsPong is set. It is for activity that the Reaper cannot see, see
// "What counts as a write" in the package comment.
func (c Conn) Touch() { c.change((*loop).Touch) }

// Hold says that the server works on a request: the connection is not idle, however silent it is,
// until Release was called as often as Hold. All other limits and heartbeats go on.
func (c Conn) Hold() {
	if s := c.state(); s != nil {
		s.Hold()
	}
}

// Release takes one Hold back. After the last one the idle timeouts restart, as with Touch. More
// calls of Release than of Hold do nothing.
func (c Conn) Release() { c.change((*loop).Release) }

// Exempt takes the connection out of all limits, or puts it back. When it is put back, its idle
// timeouts restart, and all other limits count as if it had never been out.
func (c Conn) Exempt(on bool) {
	c.change(func(l *loop, id uint32, s *conn) {
		l.Exempt(id, s, on)
		l.noteOutput(id, s)
		marker{l}.compare(id, s)
	})
}

// BeginMessage says that a message of the peer begins to come in: Config.MinRate applies until
// EndMessage. It does nothing while a message is open.
func (c Conn) BeginMessage() { c.change((*loop).BeginMessage) }

// EndMessage says that the message is complete. With MinRate.Always the next message begins.
func (c Conn) EndMessage() { c.change((*loop).EndMessage) }

// After calls f once, on the loop goroutine of the connection, when d has passed: never before, and
// at most two ticks late unless the event loop is busy. The timers of a connection that closes are
// dropped. The func stop, which belongs to the loop goroutine too, cancels the call. It returns
// false if f cannot be called any more: it was called by After, stop was called, or the connection
// is closed. A panic of f ends the process, as one of OnTraffic does.
//
// The tick is [Config.Tick], which depends on the timeouts. If d is 0 or less, f is called in the
// next task of the event loop. If d is above ten years, it is ten years. A nil f panics. The func f
// may call all methods of Conn, its own stop included, and close the connection with c.Close. Hold,
// Exempt and ObserveOnly do not stop timers. For a closed connection After does nothing.
//
// A timer takes about 200 bytes, and connections without timers cost nothing.
func (c Conn) After(d time.Duration, f func(gnet.Conn)) (stop func() bool) {
	return c.addTimer(d, 0, f)
}

// Every calls f after each d, until stop is called or the connection closes; see After. If several
// calls are late, because the process was stopped or the event loop was busy, one call replaces
// them, and later ones are on time again. A d of 0 or less panics. One below a tick is rounded up.
func (c Conn) Every(d time.Duration, f func(gnet.Conn)) (stop func() bool) {
	if d <= 0 {
		panic("idle: Conn.Every: the duration is not positive")
	}
	return c.addTimer(d, d, f)
}

func (c Conn) addTimer(d, every time.Duration, f func(gnet.Conn)) (stop func() bool) {
	if f == nil {
		panic("idle: a timer of a connection without a function")
	}
	s, l := c.state(), c.loop
	if s == nil {
		return func() bool { return false }
	}
	due := l.clock.Elapsed().Add(min(max(d, 0), configtable.TenYears))
	timer := l.timers.Add(s, due, min(every, configtable.TenYears), func() {
		if l.Ends.Of(c.id) == nil {
			f(l.layers.outer(s))
			c.Writable() // f may have written
		}
	})
	l.plan()
	return func() bool { return l.timers.Stop(timer) }
}

// Timeouts are the idle timeouts of one connection, see [Conn.SetTimeouts].
type Timeouts struct {
	Read, Write, All time.Duration // none if zero
	NoHeartbeat      bool          // Config.Heartbeat does not apply
}

// SetTimeouts is [Conn.SetLimits] for the idle timeouts, after a login, or for the keep-alive time
// that a client asks for. They replace all three of the Config, and a zero is no timeout, so check
// what a client asks for. Other limits of SetLimits stay.
func (c Conn) SetTimeouts(t Timeouts) error {
	s := c.state()
	if s == nil {
		return form.NotWatched()
	}
	if min(t.Read, t.Write, t.All) < 0 {
		return fmt.Errorf("idle: Timeouts are %+v: set positive durations, or 0 for none", t)
	}
	none := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	own := c.loop.LimitsOf(s).Own
	own.ReadTimeout, own.WriteTimeout, own.AllTimeout = none(t.Read), none(t.Write), none(t.All)
	own.NoHeartbeat = t.NoHeartbeat
	return c.SetLimits(own)
}

// SetLimits gives the connection limits of its own for the rest of its life. The idle timeouts
// count from the last activity. A second call replaces all limits of the first one. Later calls of
// Update do not change them.
//
// The error says what is wrong with the limits: one is longer than ten years or than 2^30 ticks, or
// a rate has no bytes per second. It is [ErrNotWatched] if the connection is closed.
//
// Connections with the same limits share memory. An event loop can have 65,535 different ones.
func (c Conn) SetLimits(limits ConnLimits) error {
	s := c.state()
	if s == nil {
		return form.NotWatched()
	}
	l := c.loop
	if err := l.Shard.SetLimits(c.id, s, limits); err != nil {
		return err
	}
	l.outputs.addStall(limits.WriteStallTimeout, l.Set, l.clock.Elapsed())
	l.plan()
	return nil
}
