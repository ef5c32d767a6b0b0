package load

import (
	"bufio"
	"bytes"
	stdflag "flag" // the package has a type flag
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
	"github.com/idlewheel/idlewheel/loadtest/internal/testserver"
)

func TestMain(m *testing.M) {
	stdflag.Parse()
	_ = stdflag.Set("test.parallel", needs.Parallel(8)) // the tests wait most of the time
	os.Exit(m.Run())
}

// A driven loop runs under the control of a test.
type driven struct {
	t        testing.TB
	loop     *Loop
	reports  chan Report
	stall    chan time.Duration
	done     chan error
	finished bool
}

func drive(t testing.TB, addr string, specs ...Spec) *driven {
	t.Helper()
	d := &driven{t: t, reports: make(chan Report, 1024), stall: make(chan time.Duration, 1), done: make(chan error, 1)}
	setup := result.Setup{Targets: []string{addr}, Source: "127.0.0.0/8", Sources: 3, Rate: 10_000, Patience: time.Second}
	var err error
	d.loop, err = NewLoop(Plan{Setup: setup, Specs: specs}, func(r Report) {
		d.reports <- r
		select {
		case length := <-d.stall:
			time.Sleep(length)
		default:
		}
	})
	require.NoError(t, err)
	go func() { d.done <- d.loop.Run() }()
	t.Cleanup(d.end)
	return d
}

// end ends the loop of a test that has failed.
func (d *driven) end() {
	if d.finished {
		return
	}
	d.loop.Tell(Command{Finish: true})
	for late := time.After(20 * time.Second); ; {
		select {
		case <-d.reports:
		case <-d.done:
			return
		case <-late:
			d.t.Error("the loop did not end within 20 s")
			return
		}
	}
}

// until waits for a report about the only group.
func (d *driven) until(what string, holds func(g result.Group) bool) result.Group {
	d.t.Helper()
	for late := time.After(5 * time.Second); ; {
		select {
		case r := <-d.reports:
			if holds(r.Groups[0]) {
				return r.Groups[0]
			}
		case <-late:
			d.t.Fatal("waited 5 s for: " + what)
		}
	}
}

// finish ends the loop, which may wait for answers, and returns its last report.
func (d *driven) finish(drain ...time.Duration) Report {
	d.t.Helper()
	d.finished = true
	drain = append(drain, 0)
	d.loop.Tell(Command{Finish: true, Drain: drain[0]})
	require.NoError(d.t, <-d.done)
	for {
		if r := <-d.reports; r.Last {
			return r
		}
	}
}

type like = result.GroupSetup

func heartbeats(n int) Spec {
	return Spec{GroupSetup: like{
		Name: "living", Behaviour: Heartbeat, Connections: n, Interval: 20 * time.Millisecond, Jitter: 0.1, Size: 32,
		Timeout: 300 * time.Millisecond,
	}}
}

// TestLastWordsToALivingConnectionAreQuoted has a target that tells why it closes each connection.
func TestLastWordsToALivingConnectionAreQuoted(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := heartbeats(5)
		s.Size, s.Timeout = 64, time.Minute
		d := drive(t, testserver.Serve(t, func(c net.Conn) {
			_, _ = io.CopyN(c, c, 3*64)
			_, _ = io.WriteString(c, "closing: no room\n")
		}), s)
		d.until("all closed", func(g result.Group) bool { return g.Lost == 5 })
		require.Equal(t, "closing: no room", d.finish().Groups[0].Said)
	})
}

// TestSilenceCountsEarlierFaults silences connections with wrong or missing answers. The target
// keeps them for longer than their timeout.
func TestSilenceCountsEarlierFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		handle              func(net.Conn)
		garbled, unanswered uint64
	}{
		"no answer": {testserver.Discard, 0, 10},
		"another":   {testserver.Leave(time.Hour, "welcome\n"), 10, 0},
		"an echo":   {testserver.Echo, 0, 0},
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			d := drive(t, testserver.Serve(t, tc.handle), heartbeats(10))
			d.until("messages", func(g result.Group) bool { return g.Messages >= 100 })
			time.Sleep(1200 * time.Millisecond) // the patience is a second
			d.loop.Tell(Command{Silence: "living"})
			time.Sleep(time.Second) // the timeout is 300 ms
			g := d.finish().Groups[0]
			require.Equal(t, uint64(10), g.Kept)
			require.Zero(t, g.Reaped)
			require.Equal(t, tc.garbled, g.Garbled)
			require.Equal(t, tc.unanswered, g.Unanswered)
		})
	}
}

func TestOneByteLatencyCountsFromLastByte(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		d := drive(t, testserver.Serve(t, func(c net.Conn) {
			for lines := bufio.NewReader(c); ; {
				line, err := lines.ReadSlice('\n')
				if err != nil {
					return
				}
				time.Sleep(200 * time.Millisecond)
				_, _ = c.Write(line)
			}
		}), Spec{GroupSetup: like{Name: "bytes", Behaviour: OneByte, Connections: 3, Interval: 10 * time.Millisecond, Size: 40}})
		d.until("answers", func(g result.Group) bool { return g.Answers >= 9 })
		g := d.finish().Groups[0]
		require.InDelta(t, 200, g.Latency["open"].Corrected.Quantile(0.5).Milliseconds(), 150)
		require.GreaterOrEqual(t, g.Latency["open"].Corrected.Quantile(0.1), 190*time.Millisecond)
	})
}

// TestPatienceForConnectingEnds keeps idle connections open for longer than Patience.
func TestPatienceForConnectingEnds(t *testing.T) {
	for _, b := range []string{PingPong, Silent, Mute, ZeroWindow} {
		fair.RunParallel(t, b, func(t testing.TB) {
			d := drive(t, testserver.Serve(t, testserver.Discard), Spec{GroupSetup: like{Name: "idle", Behaviour: b, Connections: 3, Size: 8}})
			d.until("opened", func(g result.Group) bool { return g.Opened == 3 })
			time.Sleep(1500 * time.Millisecond) // the patience is a second
			d.until("reports go on", func(g result.Group) bool { return g.Open == 3 })
			d.finish()
		})
	}
}

func TestDeferredGroupIsOpenedByCommand(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		waits := Spec{GroupSetup: like{Name: "attackers", Behaviour: Mute, Connections: 5, Size: 8}, Deferred: true}
		d := drive(t, testserver.Serve(t, testserver.Echo), waits)
		d.until("a report", func(g result.Group) bool { require.Zero(t, g.Opened); return true })
		d.loop.Tell(Command{Open: "attackers"})
		d.until("opened", func(g result.Group) bool { return g.Opened == 5 })
		d.finish()
	})
}

func TestReapedAttackersAreCounted(t *testing.T) {
	for _, b := range []string{Trickle, SlowReader, ZeroWindow, Mute} {
		fair.RunParallel(t, b, func(t testing.TB) {
			addr := testserver.Serve(t, func(c net.Conn) {
				go func() { _, _ = c.Write(make([]byte, 1<<22)) }()
				time.Sleep(200 * time.Millisecond)
				_ = c.(*net.TCPConn).SetLinger(0)
			})
			d := drive(t, addr, Spec{GroupSetup: like{Name: "bad", Behaviour: b, Connections: 5, Interval: 20 * time.Millisecond, Size: 64}})
			d.until("all closed", func(g result.Group) bool { return g.Opened == 5 && g.Open == 0 })
			g := d.finish().Groups[0]
			require.Equal(t, uint64(5), g.Reaped)
			require.Equal(t, uint64(5), g.Reset)
			require.Equal(t, uint64(5), g.Lifetime.Count())
			require.GreaterOrEqual(t, g.Lifetime.Max(), 150*time.Millisecond, "a late client sees some connect late")
			require.Zero(t, g.Lost)
			require.Equal(t, b != Trickle, bytes.Contains(d.loop.conns[0].message, []byte("\n")), "a trickle ends no line")
		})
	}
}

func TestTargetsOfTwoFamiliesAreRefused(t *testing.T) {
	_, err := NewLoop(Plan{Setup: result.Setup{Targets: []string{"127.0.0.1:1", "[::1]:1"}}}, func(Report) {})
	require.ErrorContains(t, err, "IPv4 and IPv6")
}

func TestAnInstantBelongsToOnePhase(t *testing.T) {
	p := phases{{Name: "open"}, {Name: "hold", From: 100}, {From: 200}}
	for at, want := range map[int64]string{-1: "open", 0: "open", 99: "open", 100: "hold", 199: "hold", 200: "", 1000: ""} {
		require.Equal(t, want, p.at(at), at)
	}
	require.Empty(t, p.present())
}

// TestSinceWhenEventsShouldHaveBeenHandled has waits that begin 10 ms after the start of the loop.
// All events until 3 ms were known before.
func TestSinceWhenEventsShouldHaveBeenHandled(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		until, length time.Duration // of the wait
		full          bool

		certain, handling, clear time.Duration
	}{
		"events waited already":               {60 * ms, 20 * time.Microsecond, false, 3 * ms, 3 * ms, 10*ms + 20*time.Microsecond},
		"there may be more of them":           {60 * ms, 20 * time.Microsecond, true, 3 * ms, 3 * ms, 3 * ms},
		"an event ends the wait":              {60 * ms, 30 * ms, false, 40 * ms, 40 * ms, 40 * ms},
		"the kernel ends it a little late":    {60 * ms, 51 * ms, false, 61 * ms, 61 * ms, 61 * ms},
		"the process was stopped":             {60 * ms, 100 * ms, false, 10 * ms, 60 * ms, 110 * ms},
		"it was stopped when it was to wait":  {10 * ms, 100 * ms, false, 10 * ms, 10 * ms, 110 * ms},
		"something was due before the wait":   {5 * ms, 100 * ms, true, 10 * ms, 10 * ms, 3 * ms},
		"it was due before, and nothing came": {5 * ms, 60 * time.Microsecond, false, 10*ms + 60*time.Microsecond, 10*ms + 60*time.Microsecond, 10*ms + 60*time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			m := moments{clear: int64(3 * ms)}
			m.woke(int64(10*ms+tt.length), int64(10*ms), int64(tt.until), tt.full)
			require.Equal(t, tt.certain, time.Duration(m.certain), "certain")
			require.Equal(t, tt.handling, time.Duration(m.handling), "handling")
			require.Equal(t, tt.clear, time.Duration(m.clear), "clear")
		})
	}
}
