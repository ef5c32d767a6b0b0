package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var ping = []byte("\n")

// A fleet is the clients of one server. This process is not measured.
type fleet struct {
	conns []*client
	open  sync.WaitGroup // one for each client with an open connection
}

type client struct {
	conn   net.Conn
	sent   time.Time
	closed time.Time    // by the server; valid once the fleet has no open connection
	echoes atomic.Int64 // bytes received
}

// dial opens n connections and waits for the echo of each, 64 at a time.
func dial(addr string, n int) (*fleet, error) {
	f := &fleet{conns: make([]*client, n)}
	places := make(chan struct{}, 64)
	errs := make(chan error, n)
	for i := range f.conns {
		places <- struct{}{}
		go func() {
			var err error
			f.conns[i], err = dialOne(addr)
			errs <- err
			<-places
		}()
	}
	var failed error
	for range n {
		failed = errors.Join(failed, <-errs)
	}
	if failed != nil {
		f.close()
		return nil, failed
	}
	for _, c := range f.conns {
		f.open.Go(c.read)
	}
	return f, nil
}

func dialOne(addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn}
	if err = c.send(); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		_ = conn.Close() // the error of the echo says more
		return nil, err
	}
	return c, nil
}

func (c *client) send() error {
	c.sent = time.Now()
	_, err := c.conn.Write(ping)
	return err
}

// read reads until the connection ends and records the time.
func (c *client) read() {
	buffer := make([]byte, 16)
	for {
		n, err := c.conn.Read(buffer)
		c.echoes.Add(int64(n))
		if err != nil {
			c.closed = time.Now()
			return
		}
	}
}

// sendHeartbeats sends a byte per client once a second, evenly spread, and returns their number.
func (f *fleet) sendHeartbeats(length time.Duration) (sent int, err error) {
	began := time.Now()
	for s := range int(length / step) {
		time.Sleep(time.Duration(s)*step - time.Since(began))
		for i := s % parts; i < len(f.conns); i += parts {
			if err := f.conns[i].send(); err != nil {
				return sent, err
			}
			sent++
		}
	}
	time.Sleep(length - time.Since(began))
	return sent, nil
}

// echoes returns the number of bytes received since the connections were opened.
func (f *fleet) echoes() (n int64) {
	for _, c := range f.conns {
		n += c.echoes.Load()
	}
	return n
}

func (f *fleet) close() {
	for _, c := range f.conns {
		if c != nil {
			_ = c.conn.Close() // no data can be lost
		}
	}
	f.open.Wait()
}

// awaitEnd reports whether the server has closed all connections within a time.
func (f *fleet) awaitEnd(limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		f.open.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// A served process answers questions about itself.
type served struct {
	in  io.Writer
	out *bufio.Reader
}

func (s served) ask(what string) (sample, error) {
	var answer sample
	if _, err := fmt.Fprintln(s.in, what); err != nil {
		return answer, err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(line, &answer)
}

// drive starts a server, loads it, and measures it.
func drive(j job, cmd *exec.Cmd) (m metrics, err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, in.Close(), cmd.Wait())
		if err != nil {
			err = fmt.Errorf("%s: %w", j.Subject, err)
		}
	}()
	s := served{in, bufio.NewReader(out)}
	addr, err := s.out.ReadString('\n')
	if err != nil {
		return nil, err
	}
	return s.measure(j, strings.TrimSpace(addr))
}

func (s served) measure(j job, addr string) (metrics, error) {
	reaps := slices.ContainsFunc(serverKinds(), func(k serverKind) bool { return k.name == j.Subject && k.reaps })
	before, err := s.ask("memory")
	if err != nil {
		return nil, err
	}
	f, err := dial(addr, j.N)
	if err != nil {
		return nil, err
	}
	defer f.close()
	after, err := s.ask("memory")
	if err != nil {
		return nil, err
	}
	m := metrics{
		"bytes":    float64(after.Heap-before.Heap) / float64(j.N),
		"resident": float64(after.Resident-before.Resident) / float64(j.N),
	}

	used, err := s.ask("cpu")
	if err != nil {
		return nil, err
	}
	time.Sleep(j.Hold)
	held, err := s.ask("cpu")
	if err != nil {
		return nil, err
	}
	m["hold_ms_per_s"] = float64(held.CPU-used.CPU) / float64(time.Millisecond) / j.Hold.Seconds()

	sent, err := f.sendHeartbeats(j.Heartbeat)
	if err != nil {
		return nil, err
	}
	loaded, err := s.ask("cpu")
	if err != nil {
		return nil, err
	}
	m["echo_us"] = float64(loaded.CPU-held.CPU) / float64(time.Microsecond) / float64(sent)
	// The bytes of the last step may be in flight.
	if lost := int64(sent) - f.echoes(); lost > int64(len(f.conns)) {
		return nil, fmt.Errorf("%d of %d echoes have not come", lost, sent)
	}
	if !reaps {
		return m, nil
	}
	if !f.awaitEnd(j.Timeout + 10*time.Second) {
		return nil, errors.New("not all silent connections were closed")
	}
	var all []time.Duration
	for _, c := range f.conns {
		d := c.closed.Sub(c.sent) - j.Timeout
		if d < 0 {
			m["early"]++
		}
		all = append(all, d)
	}
	lateness(all, m)
	return m, nil
}
