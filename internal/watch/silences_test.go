package watch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// serveShape serves peers of a shape for a quarter of an hour. Each twentieth peer is dead after
// five minutes.
func serveShape(t *testing.T, peers int, next func(*rand.Rand, float64, int) float64, timeout time.Duration, asking bool) *testPort {
	t.Helper()
	cfg := testConfig{ReadTimeout: timeout, Tick: 200 * time.Millisecond, OutageGrace: -1}
	type peer struct {
		c        *testConn
		r        *rand.Rand
		x        float64
		n        int
		last, at mono.Time
	}
	all, byConn := make([]*peer, peers), map[*testConn]*peer{}
	p := newTestPort(t, cfg)
	if asking {
		p = newAskingPort(t, cfg)
		p.peer = func(c *testConn) verdict.Evidence {
			one := byConn[c]
			return verdict.Evidence{Queued: -1, Dated: true, Silent: p.now.Sub(one.last), Received: uint64(one.n)}
		}
	}
	p.now = 1
	p.pass(p.Clock.Tick())
	for i := range all {
		_, c := p.open()
		r := rand.New(rand.NewPCG(7, uint64(i)))
		all[i] = &peer{c: c, r: r, x: r.Float64(), at: p.now.Add(time.Duration(3e9 * r.Float64()))}
		byConn[c] = all[i]
	}
	for minute := time.Minute; p.now < mono.Time(15*minute); {
		due := p.now.Add(p.Clock.Tick() - 1)
		for i, one := range all {
			for one.c.Used() && one.at <= due && (i%20 > 0 || one.at < mono.Time(5*minute)) {
				one.last = one.at
				if !asking {
					record, stamp := p.Record(one.c), p.Clock.Stamp().Short()
					if stamp-record.Heard >= p.LeastSilence {
						p.EndSilence(uint32(i), one.c)
					}
					record.Heard = stamp
				}
				one.n++
				one.at = one.at.Add(time.Duration(1e9 * next(one.r, one.x, one.n)))
			}
		}
		p.pass(p.Clock.Tick())
	}
	return p
}

func (p *testPort) inspectSilences(t *testing.T) reap.Silences {
	t.Helper()
	i, err := p.NewInspector(reap.Query{Silences: true})
	require.NoError(t, err)
	p.Inspect(0, i)
	return i.Result().Silences
}

func TestSilencesPredictWhatAnotherTimeoutCuts(t *testing.T) {
	const peers = 1000
	for name, next := range testpeer.Shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := serveShape(t, peers, next, time.Minute, false)
			found := seen.inspectSilences(t)
			sampled := serveShape(t, peers, next, time.Minute, true)
			fewer := sampled.inspectSilences(t)
			require.Len(t, seen.closed, peers/20, "only the dead")
			some, _, _ := fewer.Try(fewer.Least)
			require.Greater(t, some, uint64(50), "looks see some")
			require.EqualValues(t, peers/20, found.Dead)
			for _, timeout := range []time.Duration{24 * time.Second, 31 * time.Second, 40 * time.Second, 46 * time.Second} {
				cut := float64(len(serveShape(t, peers, next, timeout, false).closed) - peers/20)
				was, sooner, known := found.Try(timeout)
				low, _, _ := fewer.Try(timeout)
				t.Logf("%v: %d predicted, %.0f cut, %d seen by looks alone; the dead %v sooner", timeout, was, cut, low, sooner)
				assert.True(t, known)
				assert.InDelta(t, cut, was, max(cut/4, 2*math.Sqrt(cut)+1))
				assert.InDelta(t, (time.Minute - timeout).Seconds(), sooner.Seconds(), 2)
				assert.LessOrEqual(t, float64(low), cut*1.05+1, "looks see a part of each silence")
			}
		})
	}
}

func TestSilencesCountOnlyWhenThePeerCouldBeHeard(t *testing.T) {
	const timeout = 16 * time.Second
	// outlive ends a silence of 8 s, and has another one of 2 s when some time has passed.
	outlive := func(p *testPort, c *testConn, d time.Duration, meanwhile func()) {
		p.pass(8 * time.Second)
		p.EndSilence(0, c)
		for range d / timeout * 4 {
			c.Touch(p.Shard.clock)
			p.pass(timeout / 4)
			meanwhile()
		}
		c.Touch(p.Shard.clock)
		p.pass(2 * time.Second)
	}
	tests := []struct {
		name    string
		silent  func(p *testPort, c *testConn) // before a byte ends the silence
		longest time.Duration                  // 0 if none is counted
	}{
		{"a silence", func(p *testPort, _ *testConn) { p.pass(8 * time.Second) }, 8 * time.Second},
		{"the process was stopped", func(p *testPort, _ *testConn) {
			p.pass(4 * time.Second)
			p.now = p.now.Add(20 * time.Second)
			p.pass(4 * time.Second)
		}, 8 * time.Second},
		{"a timeout of its own", func(p *testPort, c *testConn) {
			_ = p.SetLimits(0, c, reap.ConnLimits{ReadTimeout: time.Minute})
			p.pass(8 * time.Second)
		}, 0},
		{"a request is served", func(p *testPort, c *testConn) { c.Hold(); p.pass(8 * time.Second) }, 0},
		{"the older window is over", func(p *testPort, c *testConn) {
			outlive(p, c, 2*silencePeriod, func() { p.CountLastSilence(0, c, true) })
		}, 2 * time.Second},
		{"the windows turn before the clock moves", func(p *testPort, c *testConn) {
			outlive(p, c, 3*timeout, func() {})
			p.now = p.now.Add(2 * time.Second)
			p.CountLastSilence(0, c, true)
		}, 8 * time.Second},
		{"both windows turn at once", func(p *testPort, c *testConn) { outlive(p, c, 3*silencePeriod, func() {}) }, 2 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newTestPort(t, testConfig{ReadTimeout: timeout})
			least := time.Duration(p.LeastSilence) * p.Clock.Tick()
			require.True(t, timeout/3 < least && least < timeout/2, "a usual heartbeat touches no state: %v", least)
			p.pass(silencePeriod - time.Minute)
			id, c := p.open()
			test.silent(p, c)
			p.EndSilence(id, c)
			s := p.inspectSilences(t)
			s.Least = 0
			cut, _, _ := s.Try(test.longest - time.Second)
			assert.Equal(t, test.longest > 0, cut == 1)
			cut, _, _ = s.Try(test.longest + time.Second)
			assert.Zero(t, cut)
			assert.True(t, silencePeriod-time.Minute < s.Window && s.Window < 2*silencePeriod, "%v", s.Window)
			assert.EqualValues(t, 1, s.Connections)
			p.CountLastSilence(id, c, false)
			assert.Equal(t, c.LimitsID == 0, slices.Contains(p.inspectSilences(t).Ended, 1))
		})
	}
}

// TestNothingIsKnownAtFirst has a loop with its first connection after most of an hour, and then
// another timeout: silences of other lengths have counted before.
func TestNothingIsKnownAtFirst(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 16 * time.Second})
	p.now = p.now.Add(50 * time.Minute)
	p.Shard = Shard[conntable.Record]{}
	p.Shard.Init(&p.Watcher, 1, p)
	id, c := p.open()
	for _, timeout := range []time.Duration{16 * time.Second, 14 * time.Second, 18 * time.Second} {
		require.NoError(t, p.update(func(cfg *testConfig) { cfg.ReadTimeout = timeout }))
		for _, want := range []bool{false, true} {
			c.Touch(p.Shard.clock)
			p.pass(9 * time.Second)
			s := p.inspectSilences(t)
			cut, _, known := s.Try(8 * time.Second)
			require.Equal(t, want, known)
			require.Equal(t, want, cut == 1)
			p.EndSilence(id, c)
		}
	}
}
