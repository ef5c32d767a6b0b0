// Package prober has a client for tests of a server under attack. It is independent of the attack:
// five times a second it opens a connection and waits for one echo.
package prober

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// interval is the time between the starts of two probes.
	interval = 200 * time.Millisecond
	// timeout limits the time to connect, and then the time until the echo.
	timeout = 5 * time.Second
)

// A Prober probes a server from Start to End.
type Prober struct {
	addr    string
	over    context.Context
	end     func()
	running sync.WaitGroup

	mu     sync.Mutex
	probes Probes // guarded by mu
}

// Start begins to probe the echo server at a TCP address. It ends with the test, if not before.
func Start(t testing.TB, addr string) *Prober {
	p := &Prober{addr: addr}
	p.over, p.end = context.WithCancel(context.Background())
	t.Cleanup(func() { p.End() })
	p.running.Go(func() {
		next := time.NewTicker(interval)
		defer next.Stop()
		for {
			p.running.Go(p.probe)
			select {
			case <-p.over.Done():
				return
			case <-next.C:
			}
		}
	})
	return p
}

// End starts no further probes, waits for the running ones and returns all.
func (p *Prober) End() Probes {
	p.end()
	p.running.Wait()
	return p.probes
}

func (p *Prober) probe() {
	result := Probe{Began: time.Now()}
	result.Err = echo(p.addr)
	result.Took = time.Since(result.Began)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes = append(p.probes, result)
}

// echo connects, sends a line and reads it back.
func echo(addr string) error {
	c, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("probe\n")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, len("probe\n")))
	return err
}

// A Probe is the result of one connection with one echo.
type Probe struct {
	Began time.Time
	Took  time.Duration
	Err   error
}

// Probes are in the order in which they ended.
type Probes []Probe

// Failed returns the number of probes with an error.
func (p Probes) Failed() (n int) {
	for _, of := range p {
		if of.Err != nil {
			n++
		}
	}
	return n
}

// Quantile returns a quantile of the durations of the probes without an error, 0 if there are none.
func (p Probes) Quantile(q float64) time.Duration {
	var took []time.Duration
	for _, of := range p {
		if of.Err == nil {
			took = append(took, of.Took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// Split separates the probes that began within one of the spans from the others.
func (p Probes) Split(spans []Span) (within, others Probes) {
	for _, of := range p {
		if slices.ContainsFunc(spans, func(s Span) bool { return !of.Began.Before(s.From) && !of.Began.After(s.To) }) {
			within = append(within, of)
		} else {
			others = append(others, of)
		}
	}
	return within, others
}

// A Span is the time between two instants, both included.
type Span struct{ From, To time.Time }

func (p Probes) String() string {
	round := func(q float64) time.Duration { return p.Quantile(q).Round(10 * time.Microsecond) }
	s := fmt.Sprintf("%d probes, %d failed, p50 %v, p90 %v, p99 %v, max %v",
		len(p), p.Failed(), round(0.5), round(0.9), round(0.99), round(1))
	if i := slices.IndexFunc(p, func(of Probe) bool { return of.Err != nil }); i >= 0 {
		s += fmt.Sprintf(", first failure: %v", p[i].Err)
	}
	return s
}
