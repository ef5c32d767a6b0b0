package truth

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Faults describe how a server differs from an echo server without a reaper. The zero value is such
// a server. Functions that are nil stand for correct behaviour. Connections are numbered from 0 in
// the order of accept, messages from 0 per connection.
type faults struct {
	timeout time.Duration            // idle timeout; 0: none
	offset  time.Duration            // added to the timeout; negative: the server reaps early
	limit   int                      // the listener is closed after so many connections; 0: never
	refuse  func(n int) bool         // reset at accept
	ignore  func(n int) bool         // never read
	answer  func(p *peer, m message) // instead of an echo
	reap    func(p *peer)            // before the close of a dead connection
	pace    time.Duration            // time to handle a message, one after the other
}

// A message is a line.
type message struct {
	n    int
	line []byte
}

// An ending is how a connection ended.
type ending string

const (
	unended ending = ""
	reaped  ending = "reaped by the server"
	killed  ending = "killed by the server"
	refused ending = "refused by the server"
	left    ending = "FIN of the client"
	broken  ending = "RST of the client"
)

// A record is what happened on a connection, as the server saw it.
type record struct {
	opened, lastByte, closed time.Time
	bytes                    int
	messages, answers        int // an answer is correct
	wrong                    int // other lines and fragments that were sent
	how                      ending
}

// A server is an echo server with faults. Safe for concurrent use.
type server struct {
	faults
	addr    string
	ln      *net.TCPListener
	running sync.WaitGroup
	serial  sync.Mutex // held while a message is handled, if there is a pace

	mu    sync.Mutex
	peers []*peer // guarded by mu
}

// A peer is a connection of a server.
type peer struct {
	s      *server
	n      int
	conn   *net.TCPConn
	record // guarded by s.mu
}

// serve runs a server until the end of the test.
func serve(t testing.TB, f faults) *server {
	t.Helper()
	s, err := listen(f)
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

func listen(f faults) (*server, error) {
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	s := &server{faults: f, ln: ln, addr: ln.Addr().String()}
	s.running.Go(s.accept)
	return s, nil
}

// close ends the server and its connections.
func (s *server) close() {
	_ = s.ln.Close()
	s.killAll()
	s.running.Wait()
}

// accept accepts connections until the listener is closed.
func (s *server) accept() {
	for n := 0; s.limit == 0 || n < s.limit; n++ {
		conn, err := s.ln.AcceptTCP()
		if err != nil {
			return
		}
		p := &peer{s: s, n: n, conn: conn, record: record{opened: time.Now()}}
		s.mu.Lock()
		s.peers = append(s.peers, p)
		s.mu.Unlock()
		switch {
		case s.refuse != nil && s.refuse(n):
			_ = conn.SetLinger(0)
			p.close(refused)
		case s.ignore != nil && s.ignore(n): // close closes it
		default:
			s.running.Go(p.serve)
		}
	}
	_ = s.ln.Close()
}

// serve reads messages until the connection ends.
func (p *peer) serve() {
	s, buf, used := p.s, make([]byte, 1<<16), 0
	p.postpone(time.Now())
	for n := 0; ; {
		got, err := p.conn.Read(buf[used:])
		if err != nil {
			p.end(err)
			return
		}
		if s.pace > 0 {
			s.serial.Lock()
			for until := time.Now().Add(s.pace); time.Now().Before(until); { // a sleep would be longer
			}
			s.serial.Unlock()
		}
		now := time.Now()
		p.postpone(now)
		used += got
		lines := slices.Collect(splitLines(buf[:used]))
		p.note(func(r *record) {
			r.lastByte = now
			r.bytes += got
			r.messages += len(lines)
		})
		for _, line := range lines {
			used -= len(line)
			if s.answer == nil {
				p.echo(line)
			} else {
				s.answer(p, message{n, slices.Clone(line)})
			}
			n++
		}
		total := 0
		for _, line := range lines {
			total += len(line)
		}
		copy(buf, buf[total:total+used])
	}
}

// splitLines yields the complete lines.
func splitLines(b []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for {
			i := slices.Index(b, '\n')
			if i < 0 || !yield(b[:i+1]) {
				return
			}
			b = b[i+1:]
		}
	}
}

// postpone moves the deadline of the connection.
func (p *peer) postpone(now time.Time) {
	if p.s.timeout > 0 {
		_ = p.conn.SetReadDeadline(now.Add(p.s.timeout + p.s.offset))
	}
}

// end closes the connection after an error of a read.
func (p *peer) end(err error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.note(func(r *record) { // before the client can see it
			if r.how == unended {
				r.how, r.closed = reaped, time.Now()
			}
		})
		if p.s.reap != nil {
			p.s.reap(p)
		}
		_ = p.conn.Close()
	case errors.Is(err, syscall.ECONNRESET):
		p.close(broken)
	default:
		p.close(left)
	}
}

// close closes the connection and records why, unless it is closed already.
func (p *peer) close(how ending) {
	p.note(func(r *record) {
		if r.how == unended {
			r.how, r.closed = how, time.Now()
			_ = p.conn.Close()
		}
	})
}

// echo sends a correct answer.
func (p *peer) echo(line []byte) {
	if _, err := p.conn.Write(line); err == nil {
		p.note(func(r *record) { r.answers++ })
	}
}

// send sends something else than the expected answer.
func (p *peer) send(b []byte) {
	if _, err := p.conn.Write(b); err == nil {
		p.note(func(r *record) { r.wrong++ })
	}
}

func (p *peer) note(change func(r *record)) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	change(&p.record)
}

// killAll closes all connections that are open.
func (s *server) killAll() {
	s.mu.Lock()
	peers := slices.Clone(s.peers)
	s.mu.Unlock()
	for _, p := range peers {
		p.close(killed)
	}
}

// records returns the records of all connections.
func (s *server) records() (all []record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		all = append(all, p.record)
	}
	return all
}

// A truth is the sum of the records of a server.
type truth struct {
	opened                   int
	messages, answers, wrong int
	wronged                  int // connections with a wrong answer
	endings                  map[ending]int
	lateness                 []time.Duration // of the reaps, sorted
}

// truth sums the records.
func (s *server) truth() truth {
	sum := truth{endings: map[ending]int{}}
	for _, r := range s.records() {
		sum.opened++
		sum.messages += r.messages
		sum.answers += r.answers
		sum.wrong += r.wrong
		if r.wrong > 0 {
			sum.wronged++
		}
		sum.endings[r.how]++
		if r.how == reaped && !r.lastByte.IsZero() {
			sum.lateness = append(sum.lateness, r.closed.Sub(r.lastByte)-s.timeout)
		}
	}
	slices.Sort(sum.lateness)
	return sum
}

// quantile returns the duration that the part q of the sorted durations does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// await waits until the records satisfy a condition.
func (s *server) await(t testing.TB, what string, holds func(all []record) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(s.records()); {
		require.False(t, time.Now().After(deadline), "%s: not within 20 s", what)
		time.Sleep(5 * time.Millisecond)
	}
}
