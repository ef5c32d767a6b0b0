package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/reap"
)

// A fate is the behavior of a client.
type fate uint8

const (
	lives    fate = iota // sends heartbeats until the end
	silent               // sends a greeting, then nothing
	vanishes             // sends heartbeats, then dies without a FIN
)

var fates = []fate{lives, silent, vanishes}

func (f fate) String() string {
	return [...]string{"sends heartbeats", "falls silent", "dies without FIN"}[f]
}

// A round is a group of clients that connect, live and die.
type round struct {
	show    *show
	clients []*client
	over    bool // later closes are no verdicts; guarded by show.mu
}

// A client is one of the connections of a round.
type client struct {
	round  *round
	number int
	fate   fate

	conn     net.Conn
	mu       sync.Mutex
	lastSent time.Time // just before the write; guarded by mu

	closedAt time.Time // by the server, zero if it was not closed; guarded by show.mu
	reason   error     // of the close; guarded by show.mu
}

func newRound(s *show, clients int) *round {
	r := &round{show: s}
	for i := range clients {
		r.clients = append(r.clients, &client{round: r, number: i + 1, fate: fates[i%len(fates)]})
	}
	return r
}

// run connects the clients one by one during spread. It returns when the last dead client should
// have been reaped.
func (r *round) run(ctx context.Context, addr net.Addr, spread time.Duration) error {
	s := r.show
	began := time.Now()
	until := began.Add(spread + 3*s.cfg.ReadTimeout + 2*time.Second)
	acting, end := context.WithCancel(context.WithoutCancel(ctx)) // clients outlive ctx
	var actors sync.WaitGroup
	defer func() {
		s.mu.Lock()
		r.over = true
		for addr, c := range s.byAddr {
			if c.round == r {
				delete(s.byAddr, addr)
			}
		}
		s.mu.Unlock()
		end()
		actors.Wait()
	}()
	for i, c := range r.clients {
		if !pause(ctx, time.Until(began.Add(spread*time.Duration(i)/time.Duration(len(r.clients))))) {
			return nil
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, addr.Network(), addr.String())
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("client %d: %w", c.number, err)
		}
		c.conn = conn
		s.mu.Lock()
		s.byAddr[conn.LocalAddr().String()] = c
		s.mu.Unlock()
		actors.Go(func() { c.act(acting, s) })
	}
	pause(ctx, time.Until(until))
	return nil
}

// act behaves as the fate of the client says, until ctx is done.
func (c *client) act(ctx context.Context, s *show) {
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, c.conn) })
	defer reading.Wait()
	defer c.conn.Close()

	if !c.send("hello\n") {
		return
	}
	sent := 0
	for pause(ctx, s.cfg.ReadTimeout/3) {
		switch {
		case c.fate == silent:
			continue
		case c.fate == vanishes && sent == 3:
			if err := vanish(c.conn); err != nil {
				s.out.printf("client %d cannot die without FIN, so it freezes instead: %v", c.number, err)
				<-ctx.Done()
			}
			return
		}
		sent++
		if !c.send(ping + "\n") {
			return
		}
	}
}

func (c *client) send(msg string) bool {
	c.mu.Lock()
	c.lastSent = time.Now()
	c.mu.Unlock()
	_, err := c.conn.Write([]byte(msg))
	return err == nil
}

// mistake returns what was wrong with the verdict on a client, or "" if the verdict was right. It
// is called after the round.
func (c *client) mistake() string {
	silence := c.closedAt.Sub(c.lastSent)
	switch {
	case errors.Is(c.reason, reap.Kicked): // on the page
		return ""
	case c.fate == lives && !c.closedAt.IsZero():
		return "a living client was cut off"
	case c.fate == lives:
		return ""
	case c.closedAt.IsZero():
		return "a dead client was kept"
	case !errors.Is(c.reason, reap.ReadIdle):
		return fmt.Sprintf("closed for another reason: %v", c.reason)
	case silence < c.round.show.cfg.ReadTimeout:
		return fmt.Sprintf("reaped too early, after %v", silence)
	default:
		return ""
	}
}

// verdict prints the wrong verdicts, and returns an error if there are any.
func (r *round) verdict() error {
	mistakes := 0
	for _, c := range r.clients {
		if m := c.mistake(); m != "" {
			r.show.out.printf("client %d (%s): %s", c.number, c.fate, m)
			mistakes++
		}
	}
	if mistakes > 0 {
		return fmt.Errorf("%d of %d verdicts were wrong", mistakes, len(r.clients))
	}
	r.show.out.printf("all %d verdicts were right", len(r.clients))
	return nil
}

// summary prints the table and the verdict.
func (r *round) summary() error {
	out := r.show.out
	out.mu.Lock()
	fmt.Fprintln(out.out)
	w := tabwriter.NewWriter(out.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "client\tnumber\tshould\treaped\twrong\tlateness min / mean / max")
	for _, f := range fates {
		fmt.Fprintln(w, r.line(f))
	}
	_ = w.Flush()
	fmt.Fprintln(out.out)
	out.mu.Unlock()
	return r.verdict()
}

// line returns the line of the table for the clients of one fate.
func (r *round) line(f fate) string {
	var clients, wrong int
	var late []time.Duration
	for _, c := range r.clients {
		if c.fate != f {
			continue
		}
		clients++
		if c.mistake() != "" {
			wrong++
		}
		var reaped *idle.ReapError
		if errors.As(c.reason, &reaped) {
			late = append(late, reaped.Late)
		}
	}
	should := "be reaped"
	if f == lives {
		should = "stay"
	}
	return fmt.Sprintf("%s\t%d\t%s\t%d\t%d\t%s", f, clients, should, len(late), wrong, spanOf(late))
}

// spanOf returns the least, the mean and the greatest of some durations.
func spanOf(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	mean := sum / time.Duration(len(all))
	return fmt.Sprintf("%v / %v / %v",
		slices.Min(all).Round(time.Millisecond), mean.Round(time.Millisecond), slices.Max(all).Round(time.Millisecond))
}
