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

// A trial is a server with its clients.
type trial struct {
	load
	kind
	server  *process.Process
	addr    string
	clients *fleet
	empty   int64 // memory of the server before the clients
	figures rounds.Figures
}

// measure returns the figures of one server in one round. Without Java, Netty has none.
func measure(k kind, l load) (rounds.Figures, error) {
	t := trial{load: l, kind: k, figures: rounds.Figures{}}
	if _, _, err := process.Netty(nettySource); err != nil && k.name == netty {
		return t.figures, nil
	}
	// All clients become silent at the same moment. The other servers do not take that for an
	// outage of their own, so ours must not either.
	err := t.with(job{Grace: -1}, t.measureCosts)
	if err == nil && k.name != base {
		err = t.with(job{}, t.measureStop)
	}
	return t.figures, err
}

// with measures with a server of its own.
func (t *trial) with(j job, measure func() error) (err error) {
	j.Server, j.Timeout = t.name, t.timeout
	if t.server, err = start(j); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.server.Close()) }()
	if err := t.server.Answer(&t.addr); err != nil {
		return err
	}
	if t.empty, err = t.memory(); err != nil {
		return err
	}
	if t.clients, err = dial(t.addr, t.n); err != nil {
		return err
	}
	defer t.clients.close()
	t.clients.sendAll() // the first ones have waited until all were open
	return measure()
}

// memory asks a server that is written in Go for its bytes of heap and stacks.
func (t *trial) memory() (bytes int64, err error) {
	if t.name != netty {
		err = t.server.Ask("memory", &bytes)
	}
	return bytes, err
}

// measureCosts measures memory, echoes, and how silent connections are closed.
func (t *trial) measureCosts() error {
	used, err := t.memory()
	if err != nil {
		return err
	}
	if t.name != netty {
		t.figures["bytes"] = float64(used-t.empty) / float64(t.n)
	}
	began := t.server.CPU()
	sent := t.clients.sendHeartbeats(t.heartbeat)
	t.figures["echo"] = micros(t.server.CPU()-began) / float64(sent)
	// The bytes of the last step may be in flight.
	if lost := int64(sent) - t.clients.echoes.Load(); lost > int64(t.n) {
		return fmt.Errorf("%d of %d echoes have not come", lost, sent)
	}
	if t.name == base {
		return nil
	}
	return t.measureExpiry()
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }

// measureExpiry lets all clients send once more and be silent, while living ones go on.
func (t *trial) measureExpiry() (err error) {
	living, err := start(job{Living: t.living, Addr: t.addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, living.Close()) }()
	if n := t.clients.closed.Load(); n > 0 { // they would seem to be closed early
		return fmt.Errorf("%d connections were silent for %v while others were opened", n, t.timeout)
	}
	t.clients.sendAll()
	began, used := time.Now(), t.server.CPU()
	first, last, ended := t.clients.awaitEnd(t.timeout + 10*time.Second)
	if !ended {
		return errors.New("not all silent connections were closed")
	}
	used = t.server.CPU() - used
	messages := float64(t.living) * time.Since(began).Seconds() / livingPeriod.Seconds()
	t.figures["close"] = (micros(used) - messages*t.figures["echo"]) / float64(t.n)
	var p99 float64
	if err := living.Ask(fmt.Sprint(first.Add(-livingPeriod).UnixNano(), last.UnixNano()), &p99); err != nil {
		return err
	}
	if p99 > 0 { // else no message was due
		t.figures["living"] = p99
	}
	late := make([]float64, t.n) // milliseconds
	for i, c := range t.clients.conns {
		late[i] = (c.end.Sub(c.sent) - t.timeout).Seconds() * 1000
	}
	slices.Sort(late)
	early, _ := slices.BinarySearch(late, 0)
	t.figures["early"] = float64(early)
	t.figures["late"], t.figures["latest"] = late[(t.n-1)*99/100], late[t.n-1]
	return nil
}

// measureStop stops the process of the server, while the clients go on to send. There is no figure
// if the server has closed living connections before, as on a busy machine.
func (t *trial) measureStop() error {
	t.clients.sendHeartbeats(t.timeout)
	before := t.clients.closed.Load()
	if before > int64(t.n/100) {
		fmt.Fprintf(os.Stderr, "%s: %d living connections were closed before the stop\n", t.name, before)
		return nil
	}
	if err := t.server.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	t.clients.sendHeartbeats(t.stop)
	if err := t.server.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	t.clients.sendHeartbeats(t.timeout)
	t.figures["cut"] = 100 * float64(t.clients.closed.Load()-before) / float64(t.n)
	return nil
}
