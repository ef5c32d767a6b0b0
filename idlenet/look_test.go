package idlenet

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// serveDeaf accepts connections and never closes them.
func serveDeaf(t testing.TB, cfg Config) (ln *Listener, dial func() (client, conn net.Conn)) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := Listen(inner, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		require.NoError(t, ln.Drain(0, 0))
		requireNothingKept(t, ln.Reaper)
	})
	return ln, func() (client, conn net.Conn) {
		client = sockets.Dial(t, "tcp", ln.Addr().String())
		conn, err := ln.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = client.Close(), conn.Close() })
		return client, conn
	}
}

func TestCloseGraceEndsAServerThatNeverCloses(t *testing.T) {
	t.Parallel()
	ln, dial := serveDeaf(t, Config{ReadTimeout: short, CloseGrace: 400 * time.Millisecond})
	client, conn := dial()
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	ended := time.Now()
	require.NoError(t, conn.SetReadDeadline(time.Time{}), "the server replaces the deadline")
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.Greater(t, time.Since(ended), 200*time.Millisecond)
	require.ErrorIs(t, ln.Reason(conn), reap.ReadIdle)
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// TestAStopDoesNotUseUpCloseGrace stops the process while the server has time to close connections.
// In a long grace the first stop is remembered as well.
func TestAStopDoesNotUseUpCloseGrace(t *testing.T) {
	for _, grace := range []time.Duration{2 * time.Second, 10 * time.Minute} {
		w := newQuietWorld(t, Config{ReadTimeout: time.Second, CloseGrace: grace})
		l := w.accept()
		w.Sleep(time.Second + w.Slack())
		require.NotNil(t, l.Ended)
		for range 2 {
			w.Sleep(grace / 4)
			w.Stop(3*grace, false)
		}
		w.Sleep(grace/2 - w.Slack())
		require.True(t, l.IsOpen)
		w.Sleep(2 * w.Slack())
		require.False(t, l.IsOpen)
	}
}

func TestAResetIsARST(t *testing.T) {
	t.Parallel()
	ln, dial := serveDeaf(t, Config{ReadTimeout: short, Reset: []Reason{reap.ReadIdle}})
	client, conn := dial()
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, ln.Reason(conn), reap.ReadIdle)
}

func TestAStalledWriteEnds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the counters of Linux")
	}
	t.Parallel()
	ln, dial := serveDeaf(t, Config{WriteStallTimeout: short})
	_, conn := dial()
	big := strings.Repeat("x", 1<<20)
	var err error
	for err == nil {
		_, err = io.WriteString(conn, big)
	}
	require.ErrorIs(t, err, net.ErrClosed, "the Write that was blocked returns")
	require.ErrorIs(t, ln.Reason(conn), reap.WriteStall)
}

func TestOnIdleDecides(t *testing.T) {
	t.Parallel()
	events := make(chan Event, 10)
	answer := make(chan Action, 10)
	ln, dial := serveDeaf(t, Config{ReadTimeout: short, OnIdle: func(_ net.Conn, ev Event) Action {
		events <- ev
		return <-answer
	}})
	answer <- Keep
	answer <- Close
	_, conn := dial()
	first, second := <-events, <-events
	require.True(t, first.First)
	require.False(t, second.First)
	require.Equal(t, short, second.Timeout)
	require.GreaterOrEqual(t, second.Idle, 2*short-10*time.Millisecond)
	eventually(t, "it ends", func() bool { return ln.Reason(conn) != nil })
	require.ErrorIs(t, ln.Reason(conn), reap.ReadIdle)
	require.EqualValues(t, 2, ln.Stats().Events[reap.ReadIdle])
}

func TestPeersThatDoNotAnswerPingsEnd(t *testing.T) {
	t.Parallel()
	ln, dial := serveDeaf(t, Config{Heartbeat: Heartbeat{
		Interval: short, Retry: short / 2, MaxMissed: 2, Jitter: -1, Ping: func(c net.Conn) { _, _ = io.WriteString(c, "ping") },
	}})
	client, conn := dial()
	b := make([]byte, 8)
	_, err := io.ReadFull(client, b)
	require.NoError(t, err)
	require.Equal(t, "pingping", string(b))
	require.Nil(t, ln.Reason(conn))
	eventually(t, "it ends", func() bool { return ln.Reason(conn) != nil })
	require.ErrorIs(t, ln.Reason(conn), reap.HeartbeatTimeout)
	require.EqualValues(t, 2, ln.Stats().Pings)
	require.EqualValues(t, 2, ln.Stats().Missed)
	require.NoError(t, ln.Update(func(cfg *Config) { cfg.ReadTimeout, cfg.Heartbeat.Interval = time.Hour, 0 }), "heartbeats are off")
	require.Zero(t, ln.Config().Heartbeat.MaxMissed)
}

func TestGoodbyeComesAGraceBeforeTheEnd(t *testing.T) {
	t.Parallel()
	goodbye := make(chan *ReapError, 2)
	ln, dial := serveDeaf(t, Config{MaxAge: short, MaxAgeGrace: short, Goodbye: func(c net.Conn, r *ReapError) { goodbye <- r }})
	without, dialWithout := serveDeaf(t, Config{MaxAge: short, MaxAgeGrace: short})
	_, conn := dial()
	_, other := dialWithout()
	r := <-goodbye
	require.ErrorIs(t, r, reap.MaxAge)
	require.Equal(t, short, r.Grace)
	require.Nil(t, ln.Reason(conn))
	eventually(t, "both end", func() bool { return ln.Reason(conn) != nil && without.Reason(other) != nil })
	require.ErrorIs(t, ln.Reason(conn), reap.MaxAge)
	require.ErrorIs(t, without.Reason(other), reap.MaxAge, "an age with a grace needs no Goodbye")
	require.Empty(t, goodbye)
}

// TestALookRaisesAllEventsThatAreDue makes three timeouts pass at the same time.
func TestALookRaisesAllEventsThatAreDue(t *testing.T) {
	for _, test := range []struct {
		answer Action
		want   int
	}{{Keep, 3}, {Close, 1}} {
		var w *simWorld
		at := map[time.Duration]int{} // by tick
		w = newQuietWorld(t, Config{MaxAge: time.Hour, OnIdle: func(net.Conn, Event) Action {
			at[w.Now.Truncate(w.cfg.Tick)]++
			return test.answer
		}})
		l := w.accept()
		w.Sleep(5 * time.Second)
		w.change(t, func(c *Config) {
			c.ReadTimeout, c.WriteTimeout, c.AllTimeout = 2*time.Second, 3*time.Second, time.Second
		})
		w.Sleep(w.Slack())
		require.Len(t, at, 1)
		for _, events := range at {
			require.Equal(t, test.want, events)
		}
		if test.answer == Close {
			require.ErrorIs(t, l.Ended, reap.AllIdle, "its deadline passed first")
		}
	}
}

// TestAnEventThatIsNotRaisedIsNotCounted makes two timeouts pass at the same time with ObserveOnly.
// OnIdle ends the connection at the first event, so the second one is not raised. When ObserveOnly
// is switched off, it is the first of its kind.
func TestAnEventThatIsNotRaisedIsNotCounted(t *testing.T) {
	var events []Event
	w := newQuietWorld(t, Config{MaxAge: time.Hour, ObserveOnly: true, OnIdle: func(_ net.Conn, ev Event) Action {
		events = append(events, ev)
		return Close
	}})
	w.accept()
	w.Sleep(5 * time.Second)
	w.change(t, func(c *Config) { c.ReadTimeout, c.AllTimeout = 2*time.Second, time.Second })
	w.Sleep(w.Slack())
	require.Len(t, events, 1)
	require.Equal(t, reap.AllIdle, events[0].Reason)
	w.change(t, func(c *Config) { c.ObserveOnly = false })
	w.Sleep(2 * w.Slack())
	require.Len(t, events, 2)
	require.Equal(t, reap.ReadIdle, events[1].Reason)
	require.True(t, events[1].First)
}

func TestALookEndsAnIdleConnectionAfterAnEvent(t *testing.T) {
	w := newQuietWorld(t, Config{MaxAge: time.Hour})
	l := w.accept()
	w.Sleep(5 * time.Second)
	w.change(t, func(c *Config) { c.ReadTimeout, c.WriteTimeout = 2*time.Second, time.Second })
	w.Sleep(2*w.cfg.Tick + time.Millisecond)
	require.NotNil(t, l.Ended)
	require.ErrorIs(t, l.Ended, reap.ReadIdle)
	require.EqualValues(t, 1, w.ln.Stats().Events[reap.WriteIdle])
}

// TestAVerdictIsAsOldAsTheAnswer delays the driver after the kernel has answered, less than an
// outage. A byte comes meanwhile, before the timeout.
func TestAVerdictIsAsOldAsTheAnswer(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second, Tick: 20 * time.Millisecond, OutageGrace: -1})
	l := w.accept()
	w.Sleep(940 * time.Millisecond)
	w.lookSoon(l)
	w.After(50*time.Millisecond, func() { l.Sock.Peer.Send(1) })
	w.ln.ask = func(c socket, fresh time.Duration, ev *verdict.Evidence) bool {
		open := w.ask(c, fresh, ev)
		w.Stop(60*time.Millisecond, false)
		w.ln.ask = w.ask
		return open
	}
	w.Sleep(500 * time.Millisecond)
	require.Nil(t, l.Ended)
	w.Sleep(600*time.Millisecond + w.Slack())
	require.ErrorIs(t, l.Ended, reap.ReadIdle)
}

// TestAByteRightAfterTheLastOneCounts sends a byte 4 ms after the first tick. The kernel rounds its
// age up by 9 ms, so it seems as old as the connection. The age of that is known to within a tick.
func TestAByteRightAfterTheLastOneCounts(t *testing.T) {
	const ms = time.Millisecond
	w := newQuietWorld(t, Config{ReadTimeout: 1025 * ms, Tick: 25 * ms})
	w.Jiffy = 10 * ms
	l := w.accept()
	w.Sleep(1028*ms - w.Now)
	l.Sock.Peer.Send(1)
	w.Sleep(2 * ms)
	require.Equal(t, 1029*ms, l.LastByte())
	w.Sleep(l.LastByte() + w.cfg.ReadTimeout - w.Now)
	require.Nil(t, l.Ended, "a verdict is never early")
	w.Sleep(w.Slack())
	require.ErrorIs(t, l.Ended, reap.ReadIdle)
}

// TestPingsThatWaitForOutputAreNotMade has a Ping that does not return, as a Write behind one that
// blocks. Its engine uses the object again meanwhile.
func TestPingsThatWaitForOutputAreNotMade(t *testing.T) {
	t.Parallel()
	calls, goesOn := make(chan net.Conn, 100), make(chan struct{})
	r := newBare(t, Config{Heartbeat: Heartbeat{
		Interval: short, Retry: short / 2, MaxMissed: 15, Jitter: -1, Ping: func(c net.Conn) {
			calls <- c
			<-goesOn
		},
	}})
	_, c := tcpPair(t)
	for n := range 2 {
		_, err := r.Admit(c)
		require.NoError(t, err)
		missed := r.Stats().Missed
		eventually(t, "three more are due", func() bool { return r.Stats().Missed >= missed+3 })
		require.Len(t, calls, n+1)
		require.EqualValues(t, n+1, r.Stats().Pings)
		if n == 1 {
			goesOn <- struct{}{} // of the first one
			missed = r.Stats().Missed
			eventually(t, "two more are due", func() bool { return r.Stats().Missed >= missed+2 })
			require.Len(t, calls, 2, "the end of an old ping says nothing about the present one")
			close(goesOn)
			eventually(t, "it is pinged again", func() bool { return len(calls) > 2 })
		}
		require.NoError(t, r.Forget(c))
	}
}

// TestAnAnsweredPingIsFollowedByOneAfterInterval has a Retry that is much longer than Interval.
func TestAnAnsweredPingIsFollowedByOneAfterInterval(t *testing.T) {
	var l *simLife
	pings := 0
	w := newQuietWorld(t, Config{Heartbeat: Heartbeat{
		Interval: time.Second, Retry: time.Minute, Jitter: -1,
		Ping: func(net.Conn) {
			pings++
			l.Sock.Peer.Send(1)
		},
	}})
	l = w.accept()
	for n := range 5 {
		w.Sleep(time.Second + w.Slack())
		require.Equal(t, n+1, pings)
	}
}

// TestAConnectionEndsOnce ends a connection with Kick while OnIdle decides to end it.
func TestAConnectionEndsOnce(t *testing.T) {
	var w *simWorld
	var l *simLife
	reaped := 0
	w = newQuietWorld(t, Config{
		ReadTimeout: time.Second,
		OnIdle: func(c net.Conn, _ Event) Action {
			l.KickedAt = w.Now
			require.NoError(t, w.ln.Kick(t.Context(), w.ln.conn(c).ID()))
			return Close
		},
		OnReap: func(c net.Conn, reason *ReapError) {
			reaped++
			w.onReap(c, reason)
		},
	})
	l = w.accept()
	w.Sleep(time.Second + w.Slack())
	require.Equal(t, 1, reaped)
	require.EqualValues(t, 1, w.ln.Stats().Reaped.Total())
	require.ErrorIs(t, w.ln.Reason(l.c), reap.Kicked)
}

// TestUnreadBytesMayCompleteAHandshake sends the last byte of a handshake right before its end to a
// server that reads a quarter of a second later.
func TestUnreadBytesMayCompleteAHandshake(t *testing.T) {
	w := newQuietWorld(t, Config{HandshakeTimeout: time.Second, ReadTimeout: time.Minute})
	l := w.accept()
	l.reading = false
	w.Sleep(time.Second - time.Millisecond)
	l.Sock.Peer.Send(1)
	w.Sleep(250 * time.Millisecond)
	require.Nil(t, l.Ended)
	l.Ready()
	w.Sleep(10 * time.Second)
	require.Nil(t, l.Ended)
}
