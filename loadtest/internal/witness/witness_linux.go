// Package witness watches the connections of a TCP server through the kernel. The server takes no
// part in it and may be written in any language. Linux only.
//
// # Model
//
// At each sample the kernel lists the sockets of the server's ports, with the time since the last
// byte of the peer and the number of unread bytes. In addition the kernel sends an event for each
// socket that it frees, with the same figures, so a close is timed to 20 ms. If the peer's kernel
// does not acknowledge the close, or a busy kernel sends the event late, it is timed to half the
// time between samples.
//
// # Which side closed
//
// The server closed first if its socket enters FIN_WAIT or TIME_WAIT, the peer if it enters
// CLOSE_WAIT or LAST_ACK. A reset leaves no state: the segments counted by the kernel show whether
// a FIN or an RST arrived before the socket was freed.
//
// # Closed while alive
//
// See [AliveUnread] and [AliveRhythm]. A close within 100 ms of a message that the server had read
// is reported apart, because the message may have asked for it. The kernel knows no reasons: a kick
// or a drain of a connection with a rhythm counts as closed while alive.
package witness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
)

// Config is what to watch.
type Config struct {
	Ports   []int         // at least one
	Every   time.Duration // between samples
	For     time.Duration // 0 is until the context ends
	Timeout time.Duration // idle timeout of the server; 0 if it is not known
	// Progress is called after each sample with the number of open connections and of closes by the
	// server.
	Progress func(passed time.Duration, open, closed int)
}

// Watch watches until the time is over or the context ends, and returns what it saw. It needs no
// privileges. It returns an error if there is nothing to watch.
func Watch(ctx context.Context, c Config) (*Report, error) {
	freed, err := listenForEvents(c.Ports)
	if err != nil {
		return nil, err
	}
	defer freed.close()
	t := newTracker(Report{Ports: c.Ports, Began: time.Now(), Every: c.Every})
	ticks := time.NewTicker(c.Every)
	defer ticks.Stop()
	for ctx.Err() == nil {
		if err := t.look(freed); err != nil {
			return nil, err
		}
		if t.listened == 0 && t.Seen == 0 {
			return nil, fmt.Errorf("%s: no socket listens there, and there is no connection, in this network namespace", ports(c.Ports))
		}
		t.Took = time.Since(t.Began)
		open, _ := t.count()
		c.Progress(t.Took, open, len(t.Closed))
		if c.For > 0 && t.Took >= c.For {
			break
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
	t.Interrupted = t.Took < c.For
	if err := t.settle(freed); err != nil {
		return nil, err
	}
	t.judge(c.Timeout)
	t.Blind = t.blind()
	return &t.Report, nil
}

// settle takes samples until none waits for an event. They decide about sockets that the last one
// missed.
func (t *tracker) settle(from *events) error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := t.look(from)
		if _, undecided := t.count(); err != nil || undecided == 0 || time.Since(began) > 2*eventWait {
			return err
		}
	}
}

// watched has a bit for each state of a connection after its handshake, and for a listener.
const watched = 1<<unix.BPF_TCP_ESTABLISHED | 1<<unix.BPF_TCP_FIN_WAIT1 | 1<<unix.BPF_TCP_FIN_WAIT2 | 1<<unix.BPF_TCP_TIME_WAIT |
	1<<unix.BPF_TCP_CLOSE_WAIT | 1<<unix.BPF_TCP_LAST_ACK | 1<<unix.BPF_TCP_CLOSING | 1<<unix.BPF_TCP_LISTEN

// look takes a sample.
func (t *tracker) look(from *events) error {
	began := time.Now()
	var listed, freed []socket
	listening := map[uint16]bool{}
	for _, port := range t.Ports {
		err := machine.DumpSockets(watched, port, 1<<(infoAttribute-1), func(message []byte) {
			switch s, ok := parse(message, time.Now()); {
			case !ok:
			case s.state == unix.BPF_TCP_LISTEN:
				listening[s.local.Port()] = true
				if port := s.local.Port(); !slices.Contains(t.doors[port], s.local.Addr()) {
					t.doors[port] = append(t.doors[port], s.local.Addr())
				}
			default:
				listed = append(listed, s)
			}
		})
		if err != nil {
			return err
		}
	}
	ended := time.Now()
	freed, t.lost = from.take() // after the dump: a socket that it does not list is in one of both
	t.sample(began, ended, slices.DeleteFunc(listed, t.isForeign), len(listening), slices.DeleteFunc(freed, t.isForeign))
	return nil
}

// blind returns what could not be seen, and why.
func (t *tracker) blind() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	add("what happens between samples: one every %v, at most %s apart; gaps between messages are too long by up to that", t.Every, format.Duration(t.LongestWait))
	add("connections that ended between two samples: %d of them were noticed", t.short)
	add("other network namespaces, such as those of containers: run it in theirs, with nsenter -t PID -n")
	add("why the server closed: a kick or a drain looks like a mistake")
	if t.lost {
		add("some closes, because the kernel dropped events")
	}
	if t.dropped > 0 {
		add("%d closes beyond the first %d", t.dropped, len(t.Closed))
	}
	if t.listened == 0 {
		add("a shutdown of the server, because nothing listened on the port")
	}
	return all
}
