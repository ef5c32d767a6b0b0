package main

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/netty"
	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

// measure returns the figures of one server in one round. Those of a Java program are only about a
// stop; without Java there are none.
func measure(k kind, l load) (rounds.Figures, error) {
	f := rounds.Figures{}
	if k.serve != nil {
		if err := measureCosts(k, l, f); err != nil {
			return nil, err
		}
	} else if _, _, err := netty.Command(nettySource); err != nil {
		return f, nil
	}
	if !k.reaps {
		return f, nil
	}
	return f, measureStop(k, l, f)
}

// measureCosts measures memory, echoes, and how late silent connections are closed.
func measureCosts(k kind, l load, f rounds.Figures) (err error) {
	p, addr, err := start(k, job{k.name, l.timeout, true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	var before, after sample
	if err := p.Ask("memory", &before); err != nil {
		return err
	}
	clients, err := dial(addr, l.n)
	if err != nil {
		return err
	}
	defer clients.close()
	if err := p.Ask("memory", &after); err != nil {
		return err
	}
	f["bytes"] = float64(after.Heap-before.Heap) / float64(l.n)
	if err := p.Ask("time", &before); err != nil {
		return err
	}
	sent := clients.sendHeartbeats(l.heartbeat)
	if err := p.Ask("time", &after); err != nil {
		return err
	}
	f["echo"] = (after.CPU - before.CPU).Seconds() * 1e6 / float64(sent)
	// The bytes of the last step may be in flight.
	if lost := int64(sent) - clients.echoes.Load(); lost > int64(l.n) {
		return fmt.Errorf("%d of %d echoes have not come", lost, sent)
	}
	if !k.reaps {
		return nil
	}
	return measureLateness(l, clients, f)
}

// measureLateness lets all clients be silent.
func measureLateness(l load, clients *fleet, f rounds.Figures) error {
	if !clients.awaitEnd(l.timeout + 10*time.Second) {
		return errors.New("not all silent connections were closed")
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

// measureStop stops the process of the server, while the clients go on to send.
func measureStop(k kind, l load, f rounds.Figures) (err error) {
	p, addr, err := start(k, job{k.name, l.timeout, false})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	clients, err := dial(addr, l.n)
	if err != nil {
		return err
	}
	defer clients.close()
	clients.sendHeartbeats(l.timeout)
	if n := clients.closed.Load(); n > 0 {
		return fmt.Errorf("%d living connections were closed before the stop", n)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	clients.sendHeartbeats(l.stop)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	clients.sendHeartbeats(l.timeout)
	f["cut"] = 100 * float64(clients.closed.Load()) / float64(l.n)
	return nil
}
