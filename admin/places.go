package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/internal/network"
)

const (
	// grace is the time that each new connection has for its request.
	grace = 50 * time.Millisecond
	// shortGrace is the grace of a network with most of the places. Its flood delays others less.
	shortGrace = grace / 5
)

// places bounds the number of connections of an http.Server. A new connection always gets a place.
// If there are too many, another one is closed: the oldest of the network with the most
// connections. Two are closed only if nothing else is left: a connection with the token, and the
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
	opened  time.Time
	trusted bool // guarded by places.mu; its last request had the token
}

type placeKey struct{}

// connContext is for http.Server.ConnContext. It delays the next connection if it has to close one
// that is younger than the grace.
func (p *places) connContext(ctx context.Context, conn net.Conn) context.Context {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // a unix socket has no such address
	added := &place{conn: conn, network: network.Of(from.Addr(), network.IPv4Bits, network.IPv6Bits), opened: time.Now()}
	if surplus, wait := p.add(added); surplus != nil {
		time.Sleep(wait)
		_ = surplus.conn.Close()
	}
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
	if state != http.StateIdle {
		p.removeLocked(conn)
	}
}

// add adds a connection. If there are too many, it removes another one and returns it. The caller
// waits and then closes it.
func (p *places) add(added *place) (surplus *place, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, added)
	if len(p.all) <= p.max {
		return nil, 0
	}
	inNetwork := map[netip.Prefix]int{}
	for _, c := range p.all {
		inNetwork[c.network]++
	}
	kept := func(c *place) bool { return c.trusted || c == p.probe }
	surplus = p.all[0]
	for _, c := range p.all[:p.max] { // the new one is the last
		if kept(surplus) && !kept(c) || kept(surplus) == kept(c) && inNetwork[c.network] > inNetwork[surplus.network] {
			surplus = c
		}
	}
	p.removeLocked(surplus.conn)
	least := grace
	if inNetwork[surplus.network] > p.max/2 {
		least = shortGrace
	}
	return surplus, least - added.opened.Sub(surplus.opened)
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
	if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		p.probe = c
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
