package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/network"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	// grace is the time that each new connection has for its request.
	grace = 50 * time.Millisecond
	// shortGrace is the grace of a network with most of the places. Its flood delays others less.
	shortGrace = 20 * time.Millisecond
	// answerTime is the time for which a connection with an unanswered request is closed last of its
	// network.
	answerTime = time.Second
)

// places bounds the number of connections of an http.Server. A new connection always gets a place.
// If there are too many, another one is closed: the oldest of the network with the most
// connections, before those of the same network that answer a probe or have not read a request that
// has arrived. Two are closed only if nothing else is left: a connection with the token, and the
// one that answers the newest probe. So clients that hold connections, of one network or of many,
// keep neither the operator nor a probe out. Safe for concurrent use.
type places struct {
	max int // connections; immutable

	mu    sync.Mutex
	all   []*place // guarded by mu; in the order of arrival
	probe *place   // guarded by mu; it answers the newest probe; nil if that is answered
}

// A place is a connection of an http.Server.
type place struct {
	conn    net.Conn
	network netip.Prefix
	opened  time.Time // guarded by places.mu; when it got its place, and its requests are read
	trusted bool      // guarded by places.mu; its last request had the token
	asked   time.Time // guarded by places.mu; when the probe arrived that it answers, or zero
}

type placeKey struct{}

// connContext is for http.Server.ConnContext. If it has to close a connection that is younger than
// the grace, it waits, and the next connection waits in the backlog.
func (p *places) connContext(ctx context.Context, conn net.Conn) context.Context {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // a unix socket has no such address
	added := &place{conn: conn, network: network.Of(from.Addr(), network.IPv4Bits, network.IPv6Bits), opened: time.Now()}
	p.mu.Lock()
	p.all = append(p.all, added)
	p.mu.Unlock()
	runtime.Gosched() // on a busy machine the connections before this one read their requests first
	for wait := p.makeRoom(); wait > 0; wait = p.makeRoom() {
		time.Sleep(wait)
	}
	p.mu.Lock()
	added.opened = time.Now()
	p.mu.Unlock()
	return context.WithValue(ctx, placeKey{}, added)
}

// connState is for http.Server.ConnState.
func (p *places) connState(conn net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == http.StateNew || state == http.StateActive {
		return
	}
	if p.probe != nil && p.probe.conn == conn {
		p.probe = nil
	}
	if i := slices.IndexFunc(p.all, func(c *place) bool { return c.conn == conn }); i >= 0 {
		p.all[i].asked = time.Time{}
	}
	if state != http.StateIdle {
		p.removeLocked(conn)
	}
}

// makeRoom closes a connection if there are too many. If that connection is too young, makeRoom
// returns the time to wait. Meanwhile it may send its request, or close itself.
func (p *places) makeRoom() (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) <= p.max {
		return 0
	}
	inNetwork := map[netip.Prefix]int{}
	for _, c := range p.all {
		inNetwork[c.network]++
	}
	kept := func(c *place) bool { return c.trusted || c == p.probe }
	surplus := p.all[0]
	for _, c := range p.all[1:p.max] { // the new one is the last
		switch {
		case kept(surplus) != kept(c):
			if kept(surplus) {
				surplus = c
			}
		case inNetwork[surplus.network] != inNetwork[c.network]:
			if inNetwork[surplus.network] < inNetwork[c.network] {
				surplus = c
			}
		case surplus.isBusy() && !c.isBusy():
			surplus = c
		}
	}
	least := grace
	if inNetwork[surplus.network] > p.max/2 {
		least = shortGrace
	}
	if wait = least - time.Since(surplus.opened); wait <= 0 {
		p.removeLocked(surplus.conn)
		_ = surplus.conn.Close()
	}
	return wait
}

// isBusy reports whether the connection answers a probe, or is new and has not read a request that
// has arrived. A client cannot prolong that.
func (c *place) isBusy() bool {
	return time.Since(c.asked) < answerTime || time.Since(c.opened) < answerTime && hasUnread(c.conn)
}

// hasUnread reports whether bytes of the peer wait in the socket.
func hasUnread(conn net.Conn) bool {
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var ev verdict.Evidence
	err = raw.Control(func(fd uintptr) { kernel.Ask(int(fd), &ev) })
	return err == nil && ev.Found == verdict.Unread
}

func (p *places) removeLocked(conn net.Conn) {
	p.all = slices.DeleteFunc(p.all, func(c *place) bool { return c.conn == conn })
}

// begin notes what a request is. It is called when the request begins.
func (p *places) begin(r *http.Request, trusted bool) {
	c, _ := r.Context().Value(placeKey{}).(*place)
	if c == nil { // the server of another program
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.trusted = trusted
	// A probe with a body may take longer.
	if (r.URL.Path == "/livez" || r.URL.Path == "/readyz") && r.ContentLength == 0 {
		p.probe, c.asked = c, time.Now()
	}
}

// setSendBuffer bounds the output of the connection that the peer has not received yet. With a
// small buffer a write to a client that does not read fails soon.
func setSendBuffer(r *http.Request, bytes int) {
	if c, _ := r.Context().Value(placeKey{}).(*place); c != nil {
		if tcp, ok := c.conn.(interface{ SetWriteBuffer(int) error }); ok {
			_ = tcp.SetWriteBuffer(bytes)
		}
	}
}
