package idlenet

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAHoldLastsUntilBytesArrive has many connections, so that the driver does not know all last
// bytes when it notices the silence.
func TestAHoldLastsUntilBytesArrive(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 4 * time.Second})
	all := w.acceptAll(100)
	beat := func() {
		for _, l := range all {
			l.Sock.Peer.Send(1)
			w.Sleep(time.Millisecond)
		}
	}
	for range 100 {
		beat()
	}
	w.Sleep(5 * time.Second)
	require.True(t, w.ln.Stats().Suspended)
	require.Zero(t, w.ln.Stats().SuspendedFor[0].Group)
	require.Zero(t, w.ln.Stats().Outages, "no byte has ended the silence")
	require.Zero(t, w.ln.Stats().Reaped.Total())
	beat()
	w.Sleep(200 * time.Millisecond)
	require.False(t, w.ln.Stats().Suspended)
	require.Greater(t, w.ln.Stats().OutageTime, 4*time.Second)
	require.Zero(t, w.ln.Stats().Reaped.Total())
}

// TestConnectionsReapedInASilenceCount reaps half of the connections before enough were busy.
func TestConnectionsReapedInASilenceCount(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 10 * time.Second})
	all := w.acceptAll(20)
	for n := range 100 {
		send(all[n%20])
		w.Sleep(400 * time.Millisecond)
	}
	w.Sleep(15 * time.Second)
	require.EqualValues(t, 1, w.ln.Stats().Suspensions)
	require.Less(t, w.ln.Stats().Reaped.Total(), uint64(outage.MinBusy))
}

// TestEndsLeaveTimeForTheLiving: the driver rests while many connections end together.
func TestEndsLeaveTimeForTheLiving(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 2 * time.Second})
	var ended []uint64 // at each rest
	w.ln.driver.rest = func() { ended = append(ended, w.ln.Stats().Reaped.Total()) }
	w.acceptAll(500)
	w.Sleep(2*time.Second + w.Slack())
	require.EqualValues(t, 500, w.ln.Stats().Reaped.Total())
	require.Len(t, ended, 500/callsAtOnce)
	for n, most := range ended {
		require.InDelta(t, (n+1)*callsAtOnce, most, looksPerLock)
	}
}

// TestALull waits twice, and closes twice.
func TestALull(t *testing.T) {
	var l lull
	l.wait()
	in := l.in
	l.wait()
	require.Same(t, in, l.in)
	l.close()
	l.close()
	require.ErrorIs(t, in.Close(), os.ErrClosed)
	require.Zero(t, l)
}

// TestOneLivingConnectionIsNoSilence: the driver asks all connections before it holds verdicts.
func TestOneLivingConnectionIsNoSilence(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 4 * time.Second})
	all := w.acceptAll(200)
	beat := func(some []*simLife) {
		send(some...)
		w.Sleep(50 * time.Millisecond)
	}
	for range 100 {
		beat(all)
	}
	for range 90 {
		beat(all[:1])
	}
	require.Zero(t, w.ln.Stats().Suspensions)
	require.Zero(t, w.ln.Stats().Outages, "the byte of one ends no hold")
	require.EqualValues(t, 199, w.ln.Stats().Reaped[reap.ReadIdle], "they end in time")
}

// TestThoseThatWereSilentBeforeAreNotBusy has a silence of ten connections beside 190 quiet ones.
func TestThoseThatWereSilentBeforeAreNotBusy(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 10 * time.Minute})
	all := w.acceptAll(200)
	for range 200 {
		send(all[:10]...)
		w.Sleep(time.Second)
	}
	w.Sleep(6 * time.Minute)
	require.Zero(t, w.ln.Stats().Suspensions)
}

// TestTimeWithoutConnectionsIsNoSilence has the goroutine run without a connection, while it keeps
// a reason. A silence in that time would hide a shorter one.
func TestTimeWithoutConnectionsIsNoSilence(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 4 * time.Second})
	first := w.accept()
	w.Sleep(4*time.Second + w.Slack())
	require.NotNil(t, first.Ended)
	first.serverCloses()
	w.Sleep(40 * time.Second)
	require.True(t, w.judging)
	all := w.acceptAll(100)
	for range 100 {
		send(all...)
		w.Sleep(50 * time.Millisecond)
	}
	w.Sleep(5 * time.Second)
	require.True(t, w.ln.Stats().Suspended)
}

func TestTimeWithoutConnectionsIsNoOutage(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second})
	for range 2 {
		l := w.accept()
		l.serverCloses()
		w.Sleep(10 * time.Second)
		require.False(t, w.judging)
	}
	require.Zero(t, w.ln.Stats().Outages)
}

// TestAStopBetweenTwoLooksIsAnOutage stops the process in a round, after the clock has moved. The
// silence of the connection that is looked at next is longer than its timeout.
func TestAStopBetweenTwoLooksIsAnOutage(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second})
	w.listen(1) // one lock for both looks
	all := []*simLife{w.accept(), w.accept()}
	w.Sleep(500 * time.Millisecond)
	w.lookSoon(all...)
	w.ln.ask = func(c socket, fresh time.Duration, ev *verdict.Evidence) bool {
		w.ln.ask = w.ask
		open := w.ask(c, fresh, ev)
		w.Stop(5*time.Second, false)
		return open
	}
	w.Sleep(w.Slack())
	require.Equal(t, 1, w.N["stops"])
	for _, l := range all {
		require.Nil(t, l.Ended)
		l.Sock.Peer.Send(1)
	}
	w.Sleep(900 * time.Millisecond)
	require.Zero(t, w.ln.Stats().Reaped.Total())
}

// TestAPeakLeavesNoWork closes many connections at once, but a few. No call tells of it.
func TestAPeakLeavesNoWork(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 10 * time.Minute, Tick: 100 * time.Millisecond})
	all := w.acceptAll(4000)
	const stay = 5
	for n := stay; n < len(all); n += 2 {
		all[n].serverCloses()
	}
	w.Sleep(time.Second)
	require.Less(t, w.ln.Connections(), 2100, "more are checked while closed ones are found")
	for _, l := range all[stay:] {
		l.serverCloses()
	}
	w.ln.driver.probe()
	require.Less(t, w.ln.Connections(), 1800, "a probe drops closed ones")
	w.Sleep(time.Second)
	require.Equal(t, stay, w.ln.Connections())
	asked := 0
	w.ln.ask = func(c socket, fresh time.Duration, ev *verdict.Evidence) bool {
		asked++
		return w.ask(c, fresh, ev)
	}
	w.Sleep(10 * time.Second)
	require.LessOrEqual(t, asked, 100*probesPerTick)
	require.GreaterOrEqual(t, asked, 100, "the few are asked all the same")
	for _, s := range w.ln.shards {
		require.LessOrEqual(t, s.ids.Len(), stay)
	}
}

// TestAHoldEndsWhenOneIsHeard has too few connections for a group, none of which is due.
func TestAHoldEndsWhenOneIsHeard(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Hour})
	all := w.acceptAll(outage.MinBusy + 4)
	for range 30 {
		w.Sleep(time.Minute)
		send(all...)
	}
	w.Sleep(15 * time.Minute)
	w.ln.driver.heard = w.ln.driver.still // the last byte of one that was not asked
	w.Sleep(time.Second)
	require.True(t, w.ln.Stats().Suspended)
	all[7].Sock.Peer.Send(1)
	w.Sleep(time.Second)
	require.False(t, w.ln.Stats().Suspended)
	require.EqualValues(t, 1, w.ln.Stats().Suspensions)
}

// TestClosedConnectionsBehindOpenOnesAreFound has many open connections with numbers in a row.
func TestClosedConnectionsBehindOpenOnesAreFound(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 10 * time.Minute, Tick: 100 * time.Millisecond})
	const open = 2000
	for range open {
		w.accept()
	}
	for range 1000 {
		w.accept().serverCloses()
		w.Sleep(time.Millisecond)
	}
	w.Sleep(searchTime + time.Second)
	require.Equal(t, open, w.ln.Connections())
	s := w.ln.shards[0]
	s.hand = 0
	s.purge()
	require.LessOrEqual(t, s.hand, s.size()/100+2*searchedAtOnce, "the part of a tick")
	w.ln.driver.news = 1
	w.ln.driver.probe()
	require.Zero(t, w.ln.driver.news)
}

// TestARoundBetweenTwoTicksSearchesNothing has a round for each connection that is shed or kicked.
func TestARoundBetweenTwoTicksSearchesNothing(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Hour})
	w.listen(1)
	for range 64 {
		w.accept()
	}
	w.Sleep(time.Second)
	s := w.ln.shards[0]
	hand, probed := s.hand, s.probed
	for range 10 {
		w.ln.driver.round()
	}
	require.Equal(t, hand, s.hand)
	require.Equal(t, probed, s.probed)
	w.Sleep(2 * w.cfg.Tick)
	require.NotEqual(t, hand, s.hand)
	require.NotEqual(t, probed, s.probed)
}
