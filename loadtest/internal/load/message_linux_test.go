package load

import (
	"bufio"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
	"github.com/idlewheel/idlewheel/loadtest/internal/testserver"
)

func TestStampsAreReadAndGarbledOnesAreNot(t *testing.T) {
	for _, size := range []int{minStamped, minStamped + 1, 64, 5000} {
		b := padding(size)
		want := stamp{conn: 1<<32 - 1, number: 77, moment: 1<<62 + 5}
		want.write(b)
		require.Len(t, b, size)
		require.Equal(t, byte('\n'), b[size-1])
		got, ok := readStamp(b)
		require.True(t, ok)
		require.Equal(t, want, got)
		for i := range b {
			b[i] ^= 1
			_, ok := readStamp(b)
			require.False(t, ok, "byte %d of %d", i, size)
			b[i] ^= 1
		}
	}
}

func stampedOf(n int) Spec {
	s := heartbeats(n)
	s.Size, s.Timeout = 64, 0
	return s
}

// lines returns a handler that answers each line as the function says. The number of the line
// counts from 0, for each connection.
func lines(answer func(c net.Conn, line []byte, number int)) func(net.Conn) {
	return func(c net.Conn) {
		for lines, n := bufio.NewReaderSize(c, 1<<21), 0; ; n++ {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				return
			}
			answer(c, line, n)
		}
	}
}

func write(c net.Conn, b []byte) { _, _ = c.Write(b) }

// underWay is the largest number of answers that are under way at the end.
const underWay = 60

func TestAnswersAreChecked(t *testing.T) {
	var mu sync.Mutex
	var other []byte // the last message, most often of another connection
	swapped := 0     // answers that were messages of another connection
	own := 0         // answers that were earlier messages of the connection
	var kept sync.Map
	for name, tc := range map[string]struct {
		handle func(net.Conn)
		check  func(t testing.TB, g result.Group, e result.Exchange)
	}{
		"an echo": {testserver.Echo, func(t testing.TB, g result.Group, e result.Exchange) {
			require.Zero(t, g.Garbled+g.Doubled+g.Skipped+g.Swapped+g.Unanswered+e.Unanswered)
			require.InDelta(t, e.Sent, e.Answered, underWay, "the last ones are under way")
		}},
		"every third is lost": {lines(func(c net.Conn, line []byte, n int) {
			if n%3 != 1 {
				write(c, line)
			}
		}), func(t testing.TB, g result.Group, e result.Exchange) {
			require.InDelta(t, e.Sent/3, g.Skipped, underWay)
			require.Zero(t, g.Garbled+g.Doubled+g.Swapped)
			require.Zero(t, e.Unanswered, "the patience for the last ones is not over")
		}},
		"each is doubled": {lines(func(c net.Conn, line []byte, _ int) { write(c, line); write(c, line) }),
			func(t testing.TB, g result.Group, e result.Exchange) {
				require.InDelta(t, e.Sent, g.Doubled, underWay)
				require.Zero(t, g.Garbled+g.Skipped+g.Swapped+e.Unanswered)
			}},
		"answers of another connection": {lines(func(c net.Conn, line []byte, _ int) {
			mu.Lock()
			defer mu.Unlock()
			if other != nil {
				theirs, _ := readStamp(other)
				if ours, _ := readStamp(line); theirs.conn != ours.conn {
					swapped++
				} else {
					own++
				}
				write(c, other)
			}
			other = slices.Clone(line)
		}), func(t testing.TB, g result.Group, _ result.Exchange) {
			mu.Lock()
			defer mu.Unlock()
			defer func() { other, swapped, own = nil, 0, 0 }() // there may be another attempt
			require.InDelta(t, swapped, g.Swapped, underWay, "the last ones are under way")
			require.LessOrEqual(t, g.Answers, uint64(own), "no other answer counts")
			require.Zero(t, g.Garbled+g.Doubled)
		}},
		"a wrong byte": {lines(func(c net.Conn, line []byte, n int) {
			line[50] ^= byte(n % 2)
			write(c, line)
		}), func(t testing.TB, g result.Group, _ result.Exchange) { require.EqualValues(t, 10, g.Garbled) }},
		"truncated": {lines(func(c net.Conn, line []byte, _ int) { write(c, line[1:]) }),
			func(t testing.TB, g result.Group, _ result.Exchange) { require.EqualValues(t, 10, g.Garbled) }},
		"an invented number": {lines(func(c net.Conn, line []byte, _ int) {
			s, _ := readStamp(line)
			s.number += 1000
			s.write(line)
			write(c, line)
		}), func(t testing.TB, g result.Group, _ result.Exchange) { require.EqualValues(t, 10, g.Garbled) }},
		"in the opposite order": {lines(func(c net.Conn, line []byte, n int) {
			if n%2 == 0 {
				kept.Store(c, slices.Clone(line))
				return
			}
			first, _ := kept.Load(c)
			write(c, line)
			write(c, first.([]byte))
		}), func(t testing.TB, g result.Group, e result.Exchange) {
			require.InDelta(t, e.Sent/2, g.Skipped, underWay)
			require.InDelta(t, e.Sent/2, g.Doubled, underWay)
		}},
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			d := drive(t, testserver.Serve(t, tc.handle), stampedOf(10))
			d.until("messages", func(g result.Group) bool { return g.Messages >= 300 })
			g := d.finish().Groups[0]
			require.Zero(t, g.Lost)
			tc.check(t, g, *g.Exchanges["open"])
		})
	}
}

// TestPartsOfAnswersAreJoined has an echo that answers in small parts, and large messages.
func TestPartsOfAnswersAreJoined(t *testing.T) {
	slow := func(c net.Conn) {
		for b := make([]byte, 7); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			write(c, b[:n])
		}
	}
	for name, tc := range map[string]struct {
		handle func(net.Conn)
		spec   Spec
	}{
		"heartbeats": {slow, stampedOf(10)},
		"half-open":  {slow, Spec{GroupSetup: like{Name: "living", Behaviour: HalfOpen, Connections: 10, Interval: time.Millisecond, Size: 8}}},
		"bytes":      {slow, Spec{GroupSetup: like{Name: "living", Behaviour: OneByte, Connections: 10, Interval: time.Millisecond, Size: 50}}},
		"large":      {testserver.Echo, Spec{GroupSetup: like{Name: "living", Behaviour: PingPong, Connections: 3, Size: 1 << 20}}},
		"churn":      {slow, Spec{GroupSetup: like{Name: "living", Behaviour: Churn, Connections: 10, Size: 64}}},
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			d := drive(t, testserver.Serve(t, tc.handle), tc.spec)
			d.until("answers", func(g result.Group) bool { return g.Answers >= 30 })
			g := d.finish(time.Second).Groups[0]
			require.Empty(t, d.loop.parts)
			require.Zero(t, g.Lost+g.Starved+g.Reaped+g.Told+g.OpenFailed+g.Garbled+g.Doubled+g.Skipped+g.Swapped+g.Unanswered)
			require.Zero(t, g.Exchanges["open"].Unanswered)
			require.True(t, tc.spec.Behaviour != Churn || g.Opened >= 30, "each is reopened")
		})
	}
}

// TestMessagesCountInThePhaseInWhichTheyWereSent has a server that answers all messages of the
// first phase in the second one.
func TestMessagesCountInThePhaseInWhichTheyWereSent(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		answering := make(chan struct{})
		d := drive(t, testserver.Serve(t, func(c net.Conn) { <-answering; _, _ = io.Copy(c, c) }), stampedOf(10))
		d.until("messages", func(g result.Group) bool { return g.Messages >= 100 })
		d.loop.Tell(Command{Phase: "next"})
		time.Sleep(300 * time.Millisecond)
		close(answering)
		d.until("answers", func(g result.Group) bool { return g.Answers >= 200 })
		g := d.finish(time.Second).Groups[0]
		first, next := g.Exchanges["open"], g.Exchanges["next"]
		require.GreaterOrEqual(t, first.Sent, uint64(100))
		require.Equal(t, first.Sent, first.Outstanding)
		require.Equal(t, first.Sent, first.Answered)
		require.Equal(t, next.Sent, next.Answered, "the last ones are awaited")
		require.Equal(t, g.Messages, first.Sent+next.Sent)
		require.Equal(t, first.Answered, g.Latency["open"].Raw.Count())
		require.GreaterOrEqual(t, g.Latency["open"].Raw.Quantile(0), 290*time.Millisecond)
	})
}

func TestMessagesWithoutAnAnswerAreCounted(t *testing.T) {
	for name, handle := range map[string]func(net.Conn){
		"kept":   testserver.Discard,
		"closed": func(c net.Conn) { time.Sleep(500 * time.Millisecond) },
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			d := drive(t, testserver.Serve(t, handle), stampedOf(10))
			d.until("messages", func(g result.Group) bool { return g.Messages >= 100 })
			g := d.finish(1200 * time.Millisecond).Groups[0] // the patience is a second
			e := g.Exchanges["open"]
			require.Zero(t, e.Answered)
			require.Equal(t, e.Sent, e.Unanswered)
			require.Equal(t, g.Messages, e.Sent)
		})
	}
}

// TestAStopOfTheClientIsSeen stops the loop while it has nothing to do.
func TestAStopOfTheClientIsSeen(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := stampedOf(10)
		s.Timeout = 400 * time.Millisecond
		d := drive(t, testserver.Serve(t, testserver.Reap(400*time.Millisecond, "")), s)
		d.until("messages", func(g result.Group) bool { return g.Answers >= 100 })
		d.loop.Tell(Command{Silence: "living"})
		d.loop.Tell(Command{Phase: "silence"})
		d.stall <- 1500 * time.Millisecond // like SIGSTOP
		d.until("all closed", func(g result.Group) bool { return g.Open == 0 })
		last := d.finish()
		g := last.Groups[0]
		require.EqualValues(t, 10, g.Reaped)
		require.Less(t, g.Lateness.Max(), 500*time.Millisecond, "the stop is not the fault of the target")
		require.Greater(t, last.OwnDelay["silence"].Max(), time.Second)
		require.Less(t, last.OwnDelay["open"].Max(), time.Second)
	})
}

// TestLastMessagesWaitForTheTarget has a target that takes a millisecond for each message. Of a
// burst most would wait there.
func TestLastMessagesWaitForTheTarget(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		const n = 200
		needs.Descriptors(t, 2*n)
		var one sync.Mutex
		s := stampedOf(n)
		s.Interval, s.Timeout = time.Minute, 2*time.Minute
		d := drive(t, testserver.Serve(t, lines(func(c net.Conn, line []byte, _ int) {
			one.Lock()
			defer one.Unlock()
			time.Sleep(time.Millisecond)
			write(c, line)
		})), s)
		d.until("opened", func(g result.Group) bool { return g.Opened == n })
		d.loop.Tell(Command{LastMessage: "living"})
		d.until("answers", func(g result.Group) bool { return g.Answers == n })
		g := d.finish().Groups[0]
		require.Less(t, g.Latency["open"].Raw.Quantile(0.5), n/2*time.Millisecond)
	})
}

// TestLastMessagesAreSentWithoutAnAnswer has a target that answers nothing.
func TestLastMessagesAreSentWithoutAnAnswer(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := stampedOf(2 * maxUnheard)
		s.Interval = time.Minute
		d := drive(t, testserver.Serve(t, testserver.Discard), s)
		d.until("opened", func(g result.Group) bool { return g.Opened == 2*maxUnheard })
		d.loop.Tell(Command{LastMessage: "living"})
		d.until("messages", func(g result.Group) bool { return g.Messages == 2*maxUnheard })
		d.finish()
	})
}
