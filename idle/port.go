package idle

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/network"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
)

var _ watch.Port[gnet.Conn] = (*port)(nil)

// A port is the loop for package watch.
type port struct {
	*loop
	reaper *Reaper
}

func (p *port) Record(s *conn) *conntable.Record {
	r, _ := p.table.Find(key(s.Front))
	return r
}

func (p *port) Ask(s *conn, ev *verdict.Evidence) (open bool) {
	p.kernel.ask(s.Front.Fd(), ev)
	return true
}

func (p *port) Output(s *conn) int { return s.Front.OutboundBuffered() }

func (p *port) Remote(s *conn) net.Addr { return s.Front.RemoteAddr() }

// Path returns the addresses of a socket. For gnet the address of this side is that of the
// listener, which may stand for all addresses.
func (p *port) Path(s *conn) (local, remote netip.Addr) {
	if local = network.AddrOf(s.Front.LocalAddr()).Unmap(); !local.IsValid() || local.IsUnspecified() {
		local = kernel.LocalAddr(s.Front.Fd())
	}
	return local, network.AddrOf(s.Front.RemoteAddr())
}

func (p *port) Heard(s *conn, now mono.Time) mono.Time {
	return p.clock.Before(p.Record(s).Heard.Unwrap(p.clock.Stamp()), now)
}

func (p *port) Learned(s *conn, heard bool, ev *verdict.Evidence, _ mono.Time) {
	if heard {
		p.noteHeard(p.Record(s).Heard.Unwrap(p.clock.Stamp()))
	}
	if !ev.Dated {
		p.reaper.warnUndated()
	}
}

func (p *port) Raise(_ uint32, s *conn, ev Event, _ *ReapError) (end bool) {
	p.Counters.Events[ev.Reason]++
	entered := p.clock.Stamp()
	action := p.config().OnIdle(p.layers.outer(s), ev)
	p.noteStall(entered, p.clock.Stamp()) // another limit may have passed meanwhile
	if action == gnet.Shutdown {
		p.halt(gneterrors.ErrEngineShutdown)
	}
	return action == gnet.Close
}

func (p *port) Ping(_ uint32, s *conn) bool {
	p.write(s, p.config().Heartbeat.Ping(p.layers.outer(s)))
	return true
}

func (p *port) Farewell(s *conn, reason *ReapError) {
	if !p.Set.Resets(reason.Reason) {
		p.sayGoodbye(s, reason)
	}
}

// Close makes gnet close a connection. It calls OnClose meanwhile, which gets the reason.
func (p *port) Close(id uint32, s *conn, reason *ReapError) {
	opened := s.Opened()
	p.beforeClose(s, reason)
	defer func() { p.closing = closing{} }()
	if s.Opened() != opened { // a failing Write has closed it
		return
	}
	err := p.close(id, s, reason)
	switch {
	case errors.Is(err, gneterrors.ErrEngineShutdown): // the user's OnClose asked for it
		p.halt(err)
	case err != nil:
		p.Watcher.Warn(&p.reaper.warnings.closing, "closing a connection", "reason", reason.Reason, "error", err)
	}
}

// close closes a connection. gnet closes a foreign connection a moment later.
func (p *port) close(id uint32, s *conn, reason *ReapError) error {
	if !isForeign(s.Front) {
		return p.el.Close(s.Front)
	}
	p.reaper.warnForeign(s.Front)
	opened := s.Opened()
	err := s.Front.Close()
	if err == nil && s.Opened() == opened { // otherwise OnClose has got the reason already
		p.Ends.Add(id, s.Is(connstate.Observed), reason)
	}
	return err
}

func (p *port) SetKeepAlive(s *conn, d time.Duration) {
	if err := setTCPKeepAlive(s.Front, d); err != nil {
		p.Watcher.Warn(&p.reaper.warnings.keepalive, "setting keepalive", "remote", watch.NameOf(s.Front.RemoteAddr()), "error", err)
	}
}

// A busyCount is the part of a loop in a Count, over several tasks. The loop goroutine owns it.
type busyCount struct {
	count  *outage.Count // nil if all connections of the loop are counted
	scanAt int           // the piece of the table at which the next task goes on
}

// CountBusy begins to take part in a Count. The next tasks go on.
func (p *port) CountBusy(c *outage.Count) {
	p.busy = busyCount{count: c}
	p.countSome()
}

// countSome goes on with a Count, if there is one: of the next connections, it counts those that
// were open before a period and heard since its beginning. It stops when there are enough.
func (l *loop) countSome() {
	c, now, elapsed := l.busy.count, l.clock.Stamp(), l.clock.Elapsed()
	// If peers were heard after the period, this loop was blocked.
	if c == nil || c.Enough() == 0 || l.clock.Before(mono.Stamp(l.heardAt.Load()), elapsed) > c.To {
		l.busy.count = nil
		return
	}
	n := 0
	l.busy.scanAt = l.table.ScanPart(l.busy.scanAt, tableScan, func(id uint32, r conntable.Record) {
		stamp := r.Heard.Unwrap(now)
		if l.clock.Remembers(stamp) && l.clock.After(stamp) >= c.From && l.clock.Unpack(l.At(id).Opened(), elapsed) <= c.From {
			n++
		}
	})
	if c.Add(n); l.busy.scanAt == 0 {
		l.busy.count = nil
	}
}

// beforeClose does what comes before gnet closes a connection. The peer gets its goodbye, which may
// fail and close the connection, or is to be reset. OnClose gets the reason.
func (l *loop) beforeClose(s *conn, reason *ReapError) {
	if spread := l.config().ReconnectSpread; spread > 0 && reason.Reason == reap.Drained {
		reason.Reconnect = rand.N(spread)
	}
	l.closing = closing{s, reason}
	if l.Set.Resets(reason.Reason) {
		_ = s.Front.SetLinger(0) // without it the close sends FIN
	} else if !s.Is(connstate.Leaving) || reason.Reason != reap.MaxAge {
		l.sayGoodbye(s, reason) // otherwise it got its goodbye
	}
}

// endOnReturn ends a connection by the Action that the current handler call returns. So a layer
// around the handler does not find the connection closed in the middle of a call.
func (l *loop) endOnReturn(s *conn, reason *ReapError) gnet.Action {
	if l.Set.ObserveOnly {
		l.Observe(s, reason)
		return gnet.None
	}
	l.LogReap(s, reason)
	l.beforeClose(s, reason)
	return gnet.Close
}

func (l *loop) sayGoodbye(s *conn, reason *ReapError) {
	if goodbye := l.config().Goodbye; goodbye != nil {
		l.write(s, goodbye(l.layers.outer(s), reason))
	}
}

// write sends bytes to a connection through the layers around it.
func (l *loop) write(s *conn, b []byte) {
	if len(b) > 0 && s.Used() {
		_, _ = l.layers.outer(s).Write(b) // after an error gnet has closed the connection
	}
}
