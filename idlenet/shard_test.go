package idlenet

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// used returns the number of connections that are kept, closed ones included.
func (r *Reaper) used() (n int) {
	for _, s := range r.shards {
		s.mu.Lock()
		n += s.ids.Len()
		s.mu.Unlock()
	}
	return n
}

func TestClosedConnectionsAreBoundedUnderChurn(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Hour})
	const open = 100
	all := w.acceptAll(open)
	for n := range 5000 {
		all[n%open].serverCloses()
		all[n%open] = w.accept()
		w.Sleep(time.Millisecond)
		require.LessOrEqual(t, w.ln.used(), 2*open+open/4)
	}
	require.NoError(t, w.ln.Close())
	for _, l := range all {
		l.serverCloses()
	}
	w.Sleep(3 * w.cfg.Tick)
	require.Zero(t, w.ln.Connections(), "a closed Listener searches")
	require.False(t, w.judging)
}

func TestReasonsAreDroppedWithoutConnections(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second})
	all := w.acceptAll(10)
	w.Sleep(time.Second + w.Slack())
	for _, l := range all {
		require.ErrorIs(t, w.ln.Reason(l.c), reap.ReadIdle)
		l.serverCloses()
	}
	w.Sleep(time.Minute)
	require.NotNil(t, w.ln.Reason(all[0].c))
	w.Sleep(w.cfg.CloseGrace + w.Slack()) // they were found closed after CloseGrace
	w.checkEmpty()
	require.False(t, w.judging)
}

func TestTouchAndReleaseCountWithStamp(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second, Stamp: true})
	touched, released := w.accept(), w.accept()
	w.Sleep(500 * time.Millisecond)
	w.ln.with(touched.c, func(s *shard, _ uint32, n *conn) { require.NotZero(t, s.Heard(n, 0), "it was opened then") })
	send(touched, released)
	w.Sleep(100 * time.Millisecond)
	released.Hold()
	w.Sleep(700 * time.Millisecond)
	touched.Touch()
	released.Release()
	w.Sleep(900 * time.Millisecond)
	require.Zero(t, w.ln.Stats().Reaped.Total())
	w.Sleep(100*time.Millisecond + w.Slack())
	require.EqualValues(t, 2, w.ln.Stats().Reaped[reap.ReadIdle])
}

func TestMethodsIgnoreConnectionsThatAreNotWatched(t *testing.T) {
	ln := newQuietWorld(t, Config{ReadTimeout: time.Second}).ln
	for _, c := range []net.Conn{opaque{}, new(net.TCPConn), nil} {
		ln.ConnState(c, http.StateNew)
		require.Nil(t, ln.Reason(c))
		require.Zero(t, ln.conn(c))
	}
}

func TestAReleasedConnectionIsWriteIdleInTime(t *testing.T) {
	events := 0
	w := newQuietWorld(t, Config{WriteTimeout: time.Second, MaxAge: time.Hour, OnIdle: func(net.Conn, Event) Action {
		events++
		return Keep
	}})
	l := w.accept()
	w.ln.conn(l.c).Hold()
	w.Sleep(1500 * time.Millisecond)
	w.ln.conn(l.c).Release()
	w.Sleep(900 * time.Millisecond)
	require.Zero(t, events)
	w.Sleep(100*time.Millisecond + w.Slack())
	require.Equal(t, 1, events)
}

// TestTheEndOfWhatHasNotBegunDoesNothing releases a connection that is not held, and ends an
// exemption that there was not.
func TestTheEndOfWhatHasNotBegunDoesNothing(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second})
	l, exempt := w.accept(), w.accept()
	w.Sleep(500 * time.Millisecond)
	w.ln.conn(l.c).Release()
	w.ln.conn(exempt.c).Exempt(false)
	held := w.accept()
	held.Hold()
	w.ln.ConnState(held.c, http.StateIdle) // it was not active
	w.Sleep(500*time.Millisecond + w.Slack())
	require.ErrorIs(t, l.Ended, reap.ReadIdle)
	require.ErrorIs(t, exempt.Ended, reap.ReadIdle)
	w.Sleep(2 * time.Second)
	require.Nil(t, held.Ended)
}

// TestAReasonStaysThoughTheServerWasFaster closes a connection after Kick. The judge looks at the
// connection before it tells the server.
func TestAReasonStaysThoughTheServerWasFaster(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Hour})
	l := w.accept()
	w.Sleep(time.Second)
	w.lookSoon(l)
	w.Sleep(w.RoundDue - w.Now - 1)
	l.KickedAt = w.Now
	require.NoError(t, w.ln.Kick(t.Context(), w.ln.conn(l.c).ID()))
	l.serverCloses()
	w.Sleep(59 * time.Second)
	require.NotNil(t, w.ln.Reason(l.c))
	require.ErrorIs(t, w.ln.Reason(l.c), reap.Kicked)
}
