package server

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// A crowd bounds how many clients the admin listener has. Whoever comes is let in, and if there are too many, one of those goes that come
// from the same address as most: who has waited longest without asking, or else has asked first. So nobody can keep probes out by
// holding connections. Safe for concurrent use.
type crowd struct {
	most int

	mu      sync.Mutex
	clients []client // guarded by mu; in the order in which they have begun to wait, or to be answered
}

type client struct {
	conn net.Conn
	host string // that it comes from
	busy bool   // it is being answered
}

// note is a http.Server.ConnState.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = slices.DeleteFunc(c.clients, func(other client) bool { return other.conn == conn })
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	c.clients = append(c.clients, client{conn, host, state == http.StateActive})
	if state == http.StateNew && len(c.clients) > c.most {
		i := c.leaves()
		_ = c.clients[i].conn.Close()
		c.clients = slices.Delete(c.clients, i, i+1)
	}
}

// leaves returns which of the clients has to go.
func (c *crowd) leaves() (who int) {
	from := map[string]int{}
	for _, cl := range c.clients {
		from[cl.host]++
	}
	for i, cl := range c.clients {
		best := c.clients[who]
		if from[cl.host] > from[best.host] || from[cl.host] == from[best.host] && best.busy && !cl.busy {
			who = i
		}
	}
	return who
}
