package idle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// TestOutputOfAHandlerIsCheckedWhenItReturns checks output against the hard limit without a sweep.
func TestOutputOfAHandlerIsCheckedWhenItReturns(t *testing.T) {
	e := newEcho()
	e.traffic = func(c gnet.Conn) gnet.Action {
		c.(*scriptedConn).outbound += 500
		return gnet.None
	}
	s := newHandSite(t, e, Config{OutputLimit: OutputLimit{Hard: 1000}, OutageGrace: -1, Reset: []Reason{}})
	c := s.open(1)[0]
	s.pass(t, time.Minute+s.watch.Clock.Tick())
	s.receive(c)
	s.receive(c)
	require.Zero(t, s.Stats().Closed, "the limit is not exceeded")
	s.receive(c)
	require.Equal(t, &ReapError{Package: "idle", Reason: reap.OverLimit, Bytes: 1500, LimitBytes: 1000}, e.reasons()[0])
	require.NoError(t, s.Update(func(cfg *Config) { cfg.ObserveOnly = true }))
	s.pass(t, s.watch.Clock.Tick())
	for observed := s.open(1)[0]; observed.outbound <= 1000; {
		s.receive(observed)
	}
	s.pass(t, s.watch.Clock.Tick())
	require.EqualValues(t, 1, s.Stats().Observed[reap.OverLimit])

	ended := s.open(1)[0]
	s.answer.Found = verdict.Ended // gnet will close it
	for range 3 {
		s.receive(ended)
	}
	require.EqualValues(t, 1, s.Stats().Reaped[reap.OverLimit])
	s.OnClose(ended, nil)
}

// TestALargeAnswerGetsTime has a limit of 1,000 bytes. Each step takes a second: the handler adds
// bytes, or another goroutine does, and then some leave the buffer of the loop, or are taken by the
// peer from the kernel's.
func TestALargeAnswerGetsTime(t *testing.T) {
	type step struct{ adds, others, leave, taken int }
	wait := make([]step, verdict.LargeFor/time.Second-2)
	reads := slices.Repeat([]step{{taken: 110}}, 2*len(wait)+2)
	for name, tc := range map[string]struct {
		inOnOpen int
		steps    []step
		closed   bool
	}{
		"small parts":                               {0, []step{{adds: 500}, {adds: 500}, {adds: 1}}, true},
		"a large one is never taken":                {0, append([]step{{adds: 5000}}, append(wait, step{}, step{})...), true},
		"nor one of OnOpen":                         {5000, append(wait, step{}, step{}, step{}), true},
		"it has time":                               {0, append([]step{{adds: 5000}}, wait...), false},
		"a small part after a large":                {0, []step{{adds: 5000}, {adds: 1000}}, false},
		"many small parts after it":                 {0, []step{{adds: 5000}, {adds: 1000}, {adds: 1}}, true},
		"small parts after one of others":           {0, []step{{others: 5000}, {adds: 1000}}, false},
		"small parts of others":                     {0, []step{{adds: 1, others: 900}, {adds: 1, others: 900}, {}}, true},
		"others on top of a small part":             {0, []step{{adds: 1, others: 900}, {adds: 1, others: 1001}, {}}, false},
		"a large one of others in place of it":      {0, []step{{adds: 1, others: 900}, {adds: 1, others: 1001, leave: 700, taken: 700}, {}}, false},
		"a second large one":                        {0, []step{{adds: 5000}, {adds: 5000}}, true},
		"a second one of others":                    {0, []step{{adds: 5000}, {adds: 1, others: 1001}, {}}, true},
		"a second one when it is taken":             {0, []step{{adds: 5000}, {leave: 4000}, {adds: 5000}}, false},
		"some may be added as it leaves":            {0, []step{{adds: 5000}, {leave: 3000}, {adds: 1000}}, false},
		"no more than that":                         {0, []step{{adds: 5000}, {leave: 3000}, {adds: 1001}}, true},
		"nor when less than the limit waits":        {0, []step{{adds: 5000}, {leave: 4100}, {adds: 1001}, {adds: 400}}, false},
		"small parts when less waits":               {0, []step{{adds: 5000}, {leave: 4100}, {adds: 600}}, false},
		"small parts when half of the limit waits":  {0, []step{{adds: 5000}, {leave: 4500}, {adds: 501}}, true},
		"the kernel takes it, and the peer nothing": {0, append([]step{{adds: 5000, leave: 3000}}, append(wait, step{}, step{})...), true},
		"the peer takes enough":                     {0, append(append(append([]step{{adds: 9000}}, wait...), step{taken: 1000}), wait...), false},
		"the peer takes less":                       {0, append(append(append([]step{{adds: 9000}}, wait...), step{taken: 999}), step{}, step{}), true},
		"the peer takes some in each second":        {0, append([]step{{adds: 9000, taken: 110}}, reads...), false},
		"also on a quiet loop":                      {9000, reads, false},
	} {
		for _, dated := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/dated=%v", name, dated), func(t *testing.T) {
				if name == "small parts of others" && !dated {
					t.Skip("it is not known what they have written")
				}
				e, adds := newEcho(), 0
				e.open = func(c gnet.Conn) ([]byte, gnet.Action) { c.(*scriptedConn).outbound = adds; return nil, gnet.None }
				e.traffic = func(c gnet.Conn) gnet.Action {
					c.(*scriptedConn).outbound += adds
					return gnet.None
				}
				s := newHandSite(t, e, Config{OutputLimit: OutputLimit{Hard: 1000}, OutageGrace: -1, Reset: []Reason{}})
				s.answer = verdict.Evidence{Dated: dated, Counted: dated, Received: 1, Acked: 1, Queued: 5000}
				other := s.open(1)[0]
				s.pass(t, time.Minute) // a quiet sweep was at 56 s, the next is at 64 s
				adds = tc.inOnOpen
				c := s.open(1)[0]
				for _, st := range tc.steps {
					if adds = st.adds; adds > 0 {
						s.receive(c)
					}
					c.outbound += st.others - st.leave
					s.answer.Queued += st.leave - st.taken
					s.answer.Acked += uint64(st.taken)
					s.pass(t, time.Second)
				}
				reaped := s.Stats().Reaped[reap.OverLimit]
				require.Equal(t, tc.closed, reaped == 1)
				if !tc.closed {
					s.OnClose(c, nil)
				}
				adds = 0
				next := s.open(1)[0] // in the same place
				next.outbound, adds = 900, 200
				s.receive(next)
				require.Equal(t, reaped+1, s.Stats().Reaped[reap.OverLimit], "the time was given back")
				s.OnClose(other, nil)
			})
		}
	}
}

// TestTheTimeOfALargeAnswerBeginsAnew takes the limit from a connection for a minute.
func TestTheTimeOfALargeAnswerBeginsAnew(t *testing.T) {
	limited := Config{OutputLimit: OutputLimit{Hard: 1000}, ReadTimeout: time.Hour, OutageGrace: -1, Reset: []Reason{}}
	for name, edit := range map[string]func(cfg *Config){
		"exempt":   nil,
		"off":      func(cfg *Config) { cfg.OutputLimit.Hard = 0 },
		"observed": func(cfg *Config) { cfg.ObserveOnly = true },
		"raised":   func(cfg *Config) { cfg.OutputLimit.Hard = 20000 },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEcho()
			e.traffic = func(c gnet.Conn) gnet.Action { c.(*scriptedConn).outbound += 5000; return gnet.None }
			s := newHandSite(t, e, limited)
			s.answer = verdict.Evidence{Queued: -1}
			c := s.open(1)[0]
			s.receive(c)
			other := limited
			if edit == nil {
				handle(s.Reaper, c).Exempt(true)
			} else {
				edit(&other)
				require.NoError(t, s.Update(to(other)))
			}
			s.pass(t, time.Minute)
			handle(s.Reaper, c).Exempt(false)
			require.NoError(t, s.Update(to(limited)))
			s.pass(t, verdict.LargeFor)
			require.Equal(t, 1, s.Connections())
			s.pass(t, time.Second+5*s.watch.Clock.Tick())
			require.Zero(t, s.Connections())
		})
	}
}

// A totalSite is a handSite with a limit of 1600 bytes for all connections, on two loops. The
// handler writes as many bytes as the peer sends. The tests of OutputLimit.Total use it.
type totalSite struct {
	*handSite
	other     *handLoop
	ended     []*ReapError
	shutsDown bool // the handler asks for it
}

func newTotalSite(t *testing.T, cfg Config) *totalSite {
	t.Helper()
	e, s := newEcho(), &totalSite{}
	e.traffic = func(c gnet.Conn) gnet.Action {
		conn := c.(*scriptedConn)
		conn.outbound += conn.buffered
		conn.buffered = 0
		if s.shutsDown {
			return gnet.Shutdown
		}
		return gnet.None
	}
	e.closed = func(_ gnet.Conn, err error) gnet.Action {
		var reap *ReapError
		if errors.As(err, &reap) {
			s.ended = append(s.ended, reap)
		}
		return gnet.None
	}
	cfg.OutputLimit.Total, cfg.OutageGrace, cfg.Reset = 1600, -1, []Reason{}
	s.handSite = newHandSite(t, e, cfg)
	s.other = &handLoop{scriptedLoop: newScriptedLoop(), r: s.Reaper}
	return s
}

// send makes n bytes arrive, which the handler answers with as many.
func (s *totalSite) send(c *scriptedConn, n int) {
	c.buffered = n
	if s.OnTraffic(c) == gnet.Close {
		_ = c.el.(*handLoop).Close(c)
	}
}

// has reports whether a connection is open.
func (s *handSite) has(c *scriptedConn) bool {
	r, _ := s.registry.Load().find(c.EventLoop()).table.Find(key(c))
	return r != nil
}

func TestTheLargestOutputsAreClosedAboveTheTotal(t *testing.T) {
	s := newTotalSite(t, Config{})
	conns := s.open(4)
	for i, n := range []int{300, 500, 400, 400} {
		s.send(conns[i], n)
	}
	require.Equal(t, 1600, s.Stats().PendingOutput)
	require.Empty(t, s.ended, "the total is not exceeded yet")
	s.send(conns[0], 1)
	require.False(t, s.has(conns[1]))
	require.Len(t, s.ended, 1)
	require.Equal(t, &ReapError{Package: "idle", Reason: reap.OverLimit, Bytes: 500, LimitBytes: 1600, TotalBytes: 1601}, s.ended[0])
	require.EqualError(t, s.ended[0], "idle: connection reaped: over limit: 500 bytes of output wait, of all connections 1601, limit 1600")
	require.False(t, s.ended[0].Timeout())
	require.Equal(t, 1101, s.Stats().PendingOutput)
	conns[2].buffered = 700 // the connection itself has the most then
	require.Equal(t, gnet.Close, s.OnTraffic(conns[2]))
	require.True(t, s.has(conns[2]), "gnet closes it after the call")
	_ = s.el.Close(conns[2])
	require.Equal(t, 1100, s.ended[1].Bytes)
	require.Equal(t, 701, s.Stats().PendingOutput)
	s.OnClose(conns[3], nil)
	s.OnClose(conns[0], nil)
	require.Zero(t, s.Stats().PendingOutput)
}

// TestASixteenthOfTheTotalIsFreed has connections that are all as large.
func TestASixteenthOfTheTotalIsFreed(t *testing.T) {
	s := newTotalSite(t, Config{})
	conns := s.open(33)
	for _, c := range conns[:32] {
		s.send(c, 50)
	}
	require.Empty(t, s.ended)
	s.send(conns[32], 50)
	require.Len(t, s.ended, 3)
	require.Equal(t, 1500, s.Stats().PendingOutput)
}

// TestAnotherLoopHasTheLargestOutput exceeds the total on a loop with small outputs.
func TestAnotherLoopHasTheLargestOutput(t *testing.T) {
	s := newTotalSite(t, Config{})
	small := s.open(2)
	s.el = s.other
	large := s.open(1)[0]
	s.send(large, 1400)
	s.send(small[0], 150)
	s.send(small[1], 100)
	require.Empty(t, s.ended, "the loop of the largest output closes it")
	require.Len(t, s.watch.Wakes, 1, "the driver is told")
	s.pass(t, s.watch.Clock.Tick())
	require.False(t, s.has(large))
	require.True(t, s.has(small[0]))

	again := s.open(1)[0]
	s.send(again, 1350)
	s.send(small[0], 200) // nine eighths
	require.Empty(t, s.ended[1:])
	s.send(small[0], 1)
	require.Len(t, s.ended, 2, "the other loop does nothing for too long")
	require.False(t, s.has(small[0]))
	require.True(t, s.has(small[1]))
	require.True(t, s.has(again))
}

// TestOutputThatPeersHaveTakenDoesNotCount has peers that take output, of which no event tells.
func TestOutputThatPeersHaveTakenDoesNotCount(t *testing.T) {
	s := newTotalSite(t, Config{})
	conns := s.open(3)
	s.send(conns[0], 900)
	s.send(conns[1], 600)
	conns[0].outbound = 10
	s.send(conns[2], 400)
	require.Empty(t, s.ended)
	require.Equal(t, 1010, s.Stats().PendingOutput, "the largest was checked")
	conns[1].outbound = 0
	s.pass(t, 2*s.watch.Clock.Tick())
	require.Equal(t, 410, s.Stats().PendingOutput, "more than half was in use")
	conns[2].outbound = 0
	s.pass(t, s.watch.Clock.Tick())
	require.Equal(t, 410, s.Stats().PendingOutput)
	s.pass(t, 8*time.Second)
	require.Equal(t, 0, s.Stats().PendingOutput-conns[0].outbound)

	s.send(conns[0], 700)
	s.send(conns[1], 650)
	conns[0].outbound = 600 // counted as 710
	s.send(conns[2], 600)
	require.True(t, s.has(conns[0]), "another one has more")
	require.False(t, s.has(conns[1]))
}

// TestOutputOfOtherGoroutinesCountsForTheTotal writes output that raises no event.
func TestOutputOfOtherGoroutinesCountsForTheTotal(t *testing.T) {
	s := newTotalSite(t, Config{})
	conns := s.open(100)
	for _, c := range conns {
		c.outbound = 100
	}
	s.pass(t, 8*time.Second+2*s.watch.Clock.Tick())
	require.Len(t, s.ended, 85)
	require.Equal(t, 1500, s.Stats().PendingOutput)
}

func TestExemptAndEndedConnectionsDoNotCountForTheTotal(t *testing.T) {
	s := newTotalSite(t, Config{})
	conns := s.open(3)
	exempt := handle(s.Reaper, conns[0])
	s.send(conns[0], 1000)
	exempt.Exempt(true)
	require.Zero(t, s.Stats().PendingOutput)
	s.send(conns[0], 5000)
	s.send(conns[1], 1600)
	require.Empty(t, s.ended)
	s.answer.Found = verdict.Ended // gnet will close it
	s.send(conns[1], 1)
	require.Empty(t, s.ended)
	require.Zero(t, s.Stats().PendingOutput)
	s.answer.Found = verdict.Nothing
	exempt.Exempt(false)
	require.False(t, s.has(conns[0]) && s.Stats().PendingOutput == 0)
	s.send(conns[2], 1)
	require.False(t, s.has(conns[0]))
}

func TestObserveOnlyClosesNothingForTheTotal(t *testing.T) {
	s := newTotalSite(t, Config{ObserveOnly: true})
	conns := s.open(2)
	s.send(conns[0], 1000)
	s.send(conns[1], 1000)
	require.Equal(t, 1000, s.Stats().PendingOutput)
	s.pass(t, 8*time.Second)
	require.Empty(t, s.ended)
	require.EqualValues(t, 1, s.Stats().Observed[reap.OverLimit])
	require.Equal(t, 1000, s.Stats().PendingOutput, "an observed connection does not count again")
}

func TestUpdateChangesTheTotal(t *testing.T) {
	s := newTotalSite(t, Config{ReadTimeout: time.Hour})
	conns := s.open(2)
	s.send(conns[0], 700)
	s.send(conns[1], 800)
	require.NoError(t, s.Update(func(cfg *Config) { cfg.OutputLimit.Total = -1 }))
	s.pass(t, 2*s.watch.Clock.Tick())
	require.Zero(t, s.Stats().PendingOutput)
	l, _, _, _ := s.watched(conns[0])
	require.Zero(t, l.outputs.mostWaiting.Load())
	s.send(conns[0], 9000)
	require.Empty(t, s.ended)
	require.NoError(t, s.Update(func(cfg *Config) { cfg.OutputLimit.Total = 1000 }))
	s.pass(t, 8*time.Second+2*s.watch.Clock.Tick())
	require.Equal(t, 9700, s.ended[0].Bytes)
	require.Equal(t, 800, s.Stats().PendingOutput)
}

// TestAShutdownComesFirst asks for it in OnTraffic, with output above a limit, or in the OnClose
// of another connection, which is closed for the total.
func TestAShutdownComesFirst(t *testing.T) {
	for _, own := range []bool{true, false} {
		s := newTotalSite(t, Config{OutputLimit: OutputLimit{Hard: 1200}})
		conns := s.open(2)
		s.send(conns[0], 1000)
		if conns[1].buffered = 900; own {
			conns[1].buffered, s.shutsDown = 1300, true
		} else {
			s.el.closeErr = gneterrors.ErrEngineShutdown
		}
		require.Equal(t, gnet.Shutdown, s.OnTraffic(conns[1]))
	}
}

// TestOutputHeapAgainstAMap compares a heap with a map after random calls.
func TestOutputHeapAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var s outputHeap
	want := map[uint32]int{}
	for range 20_000 {
		id, bytes := uint32(random.IntN(50)), random.IntN(100)
		if random.IntN(2) == 0 {
			bytes = 0
		}
		require.Equal(t, bytes-want[id], s.set(id, bytes))
		want[id] = bytes
		if bytes == 0 {
			delete(want, id)
		}
		sum, most := 0, 0
		for _, n := range want {
			sum += n
			most = max(most, n)
		}
		of, largest := s.largest()
		require.Equal(t, most, largest)
		require.Equal(t, want[of], largest)
		require.Equal(t, sum, s.sum)
		require.Equal(t, len(want), s.Len())
		require.Equal(t, want[id] > 0, s.has(id))
		for i, o := range s.all {
			require.Equal(t, i, s.at[o.id])
		}
	}
	for id := range want {
		s.set(id, 0)
	}
	require.Nil(t, s.all)
	require.Nil(t, s.at)
}

func TestAChangeAllocatesNothing(t *testing.T) {
	var s outputHeap
	for id := range uint32(1000) {
		s.set(id, 1)
	}
	n := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() { n++; s.set(uint32(n%1000), n) }))
}
