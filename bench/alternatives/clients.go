package main

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	step  = 10 * time.Millisecond // between two parts of the heartbeats
	parts = 100                   // a connection sends once a second
)

// A fleet is the clients of one server.
type fleet struct {
	conns  []*client
	open   sync.WaitGroup // one for each client with an open connection
	closed atomic.Int64   // number of connections that the server has closed
	echoes atomic.Int64   // bytes received
}

type client struct {
	conn net.Conn
	sent time.Time
	end  time.Time // valid once the fleet has no open connection
}

// dial opens n connections and waits for the echo of each, 64 at a time.
func dial(addr string, n int) (*fleet, error) {
	f := &fleet{conns: make([]*client, n)}
	var dials errgroup.Group
	dials.SetLimit(64)
	for i := range f.conns {
		dials.Go(func() error {
			conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
			if err != nil {
				return err
			}
			f.conns[i] = &client{conn: conn}
			if err := f.conns[i].send(); err != nil {
				return err
			}
			_, err = conn.Read(make([]byte, 1))
			return err
		})
	}
	if err := dials.Wait(); err != nil {
		f.close()
		return nil, err
	}
	for _, c := range f.conns {
		f.open.Go(func() { f.read(c) })
	}
	return f, nil
}

func (c *client) send() error {
	c.sent = time.Now()
	_, err := c.conn.Write([]byte("\n"))
	return err
}

// read reads until the connection ends and records the time.
func (f *fleet) read(c *client) {
	buffer := make([]byte, 16)
	for {
		n, err := c.conn.Read(buffer)
		f.echoes.Add(int64(n))
		if err != nil {
			c.end = time.Now()
			f.closed.Add(1)
			return
		}
	}
}

// sendHeartbeats sends a byte per client once a second, evenly spread, and returns the number of
// those that were sent.
func (f *fleet) sendHeartbeats(length time.Duration) (sent int) {
	began := time.Now()
	for s := range int(length / step) {
		time.Sleep(time.Duration(s)*step - time.Since(began))
		for i := s % parts; i < len(f.conns); i += parts {
			if f.conns[i].send() == nil {
				sent++
			}
		}
	}
	time.Sleep(length - time.Since(began))
	return sent
}

// sendAll sends a byte per client, at once.
func (f *fleet) sendAll() {
	for _, c := range f.conns {
		_ = c.send() // the end of a connection has its time
	}
}

// awaitEnd waits until the server has closed all connections, at most for a time, and returns when
// the first and the last one ended.
func (f *fleet) awaitEnd(limit time.Duration) (first, last time.Time, ended bool) {
	for giveUp := time.Now().Add(limit); f.closed.Load() < int64(len(f.conns)); time.Sleep(step) {
		if time.Now().After(giveUp) {
			return first, last, false
		}
	}
	f.open.Wait()
	byEnd := func(a, b *client) int { return a.end.Compare(b.end) }
	return slices.MinFunc(f.conns, byEnd).end, slices.MaxFunc(f.conns, byEnd).end, true
}

func (f *fleet) close() {
	for _, c := range f.conns {
		if c != nil {
			_ = c.conn.Close() // no data can be lost
		}
	}
	f.open.Wait()
}
