// Package connlimit bounds the number of connections of an http.Server.
package connlimit

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// A Limiter closes a connection of an http.Server when there are more than Max. New clients are
// always accepted. Above the limit, one client of the address with the most connections is closed:
// the one that has waited longest without a request, or else the one with the oldest request. So a
// client that holds connections cannot keep other clients out. Safe for concurrent use.
type Limiter struct {
	Max int // connections; immutable

	mu      sync.Mutex
	clients []client // guarded by mu; in the order in which they began to wait, or their request began
}

type client struct {
	conn net.Conn
	host string // address without the port
	busy bool   // a request is being answered
}

// ConnState is for http.Server.ConnState.
func (l *Limiter) ConnState(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = slices.DeleteFunc(l.clients, func(other client) bool { return other.conn == conn })
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	l.clients = append(l.clients, client{conn, host, state == http.StateActive})
	if state == http.StateNew && len(l.clients) > l.Max {
		i := l.surplusLocked()
		_ = l.clients[i].conn.Close()
		l.clients = slices.Delete(l.clients, i, i+1)
	}
}

// surplusLocked returns the index of the client to close.
func (l *Limiter) surplusLocked() (surplus int) {
	perHost := map[string]int{}
	for _, c := range l.clients {
		perHost[c.host]++
	}
	for i, c := range l.clients {
		best := l.clients[surplus]
		if perHost[c.host] > perHost[best.host] || perHost[c.host] == perHost[best.host] && best.busy && !c.busy {
			surplus = i
		}
	}
	return surplus
}
