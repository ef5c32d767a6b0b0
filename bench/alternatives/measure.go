package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/process"
	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

// measure returns the figures of one server in one round. Without Java, Netty has none.
func measure(k kind, l load) (rounds.Figures, error) {
	f := rounds.Figures{}
	if k.serve == nil {
		if _, _, err := process.Netty(nettySource); err != nil {
			return f, nil
		}
	}
	if err := measureCosts(k, l, f); err != nil || !k.reaps {
		return f, err
	}
	return f, measureStop(k, l, f)
}

// measureCosts measures memory, echoes, and how silent connections are closed.
func measureCosts(k kind, l load, f rounds.Figures) (err error) {
	// All clients become silent at the same moment. The other servers do not take that for an
	// outage of their own, so ours must not either.
	p, addr, err := startServer(k, job{Timeout: l.timeout, Grace: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	before, err := heap(k, p)
	if err != nil {
		return err
	}
	clients, err := dial(addr, l.n)
	if err != nil {
		return err
	}
	defer clients.close()
	clients.sendAll() // the first ones have waited until all were open
	after, err := heap(k, p)
	if err != nil {
		return err
	}
	if k.serve != nil {
		f["bytes"] = float64(after-before) / float64(l.n)
	}
	used := p.CPU()
	sent := clients.sendHeartbeats(l.heartbeat)
	f["echo"] = micros(p.CPU()-used) / float64(sent)
	// The bytes of the last step may be in flight.
	if lost := int64(sent) - clients.echoes.Load(); lost > int64(l.n) {
		return fmt.Errorf("%d of %d echoes have not come", lost, sent)
	}
	if !k.reaps {
		return nil
	}
	return measureExpiry(p, addr, l, clients, f)
}

// heap asks a server that is written in Go for its memory.
func heap(k kind, p *process.Process) (bytes int64, err error) {
	if k.serve != nil {
		err = p.Ask("memory", &bytes)
	}
	return bytes, err
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }

// measureExpiry lets all clients send once more and be silent, while living ones go on.
func measureExpiry(p *process.Process, addr string, l load, clients *fleet, f rounds.Figures) (err error) {
	living, err := startChild(job{Living: l.living, Addr: addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, living.Close()) }()
	if n := clients.closed.Load(); n > 0 { // they would seem to be closed early
		return fmt.Errorf("%d connections were silent for %v while others were opened", n, l.timeout)
	}
	clients.sendAll()
	began, used := time.Now(), p.CPU()
	if !clients.awaitEnd(l.timeout + 10*time.Second) {
		return errors.New("not all silent connections were closed")
	}
	used = p.CPU() - used
	messages := float64(l.living) * time.Since(began).Seconds() / livingPeriod.Seconds()
	f["close"] = (micros(used) - messages*f["echo"]) / float64(l.n)
	first, last := clients.ends()
	var p99 float64
	if err := living.Ask(fmt.Sprint(first.Add(-livingPeriod).UnixNano(), last.UnixNano()), &p99); err != nil {
		return err
	}
	if p99 > 0 { // else no message was due
		f["living"] = p99
	}
	late := make([]float64, l.n) // milliseconds
	f["early"] = 0
	for i, c := range clients.conns {
		late[i] = (c.end.Sub(c.sent) - l.timeout).Seconds() * 1000
		if late[i] < 0 {
			f["early"]++
		}
	}
	slices.Sort(late)
	f["late"], f["latest"] = late[(l.n-1)*99/100], late[l.n-1]
	return nil
}

// measureStop stops the process of the server, while the clients go on to send. There is no figure
// if the server has closed living connections before, as on a busy machine.
func measureStop(k kind, l load, f rounds.Figures) (err error) {
	p, addr, err := startServer(k, job{Timeout: l.timeout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	clients, err := dial(addr, l.n)
	if err != nil {
		return err
	}
	defer clients.close()
	clients.sendAll()
	clients.sendHeartbeats(l.timeout)
	before := clients.closed.Load()
	if before > int64(l.n/100) {
		fmt.Fprintf(os.Stderr, "%s: %d living connections were closed before the stop\n", k.name, before)
		return nil
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	clients.sendHeartbeats(l.stop)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	clients.sendHeartbeats(l.timeout)
	f["cut"] = 100 * float64(clients.closed.Load()-before) / float64(l.n)
	return nil
}
