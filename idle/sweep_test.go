package idle

import (
	"fmt"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

func TestConnectionsWithoutOutputAskNoKernel(t *testing.T) {
	const n, stall = 100, 20 * time.Second
	for name, tc := range map[string]struct {
		cfg  Config
		want int // questions in an hour
	}{
		"hard limit":  {Config{OutputLimit: OutputLimit{Hard: 1 << 20}}, 0},
		"soft limit":  {Config{OutputLimit: OutputLimit{Soft: 1 << 20, SoftFor: 2 * time.Second}}, 0},
		"write stall": {Config{WriteStallTimeout: stall}, n * int(time.Hour/stall)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHandSite(t, newEcho(), tc.cfg)
			conns := s.open(n)
			s.pass(t, time.Hour)
			require.InDelta(t, tc.want, s.asked, float64(tc.want)/20, "once in WriteStallTimeout, for output that only the kernel holds")
			for _, c := range conns {
				s.OnClose(c, nil)
			}
		})
	}
}

// A reader reads what there is.
type reader struct{ gnet.BuiltinEventEngine }

func (*reader) OnTraffic(c gnet.Conn) gnet.Action {
	c.(*scriptedConn).buffered = 0
	return gnet.None
}

// receive lets a byte come in on a connection.
func (s *handSite) receive(c *scriptedConn) {
	c.buffered = 1
	s.OnTraffic(c)
}

// TestOutputThatAnotherGoroutineWritesIsFound: no event tells of it. A loop that hears nothing is
// checked less often.
func TestOutputThatAnotherGoroutineWritesIsFound(t *testing.T) {
	const limit = 4 * time.Second
	for name, tc := range map[string]struct {
		cfg           Config
		output        int
		within, quiet time.Duration
	}{
		"hard limit":    {Config{OutputLimit: OutputLimit{Hard: 1000}}, 1001, time.Second, 8 * time.Second},
		"soft limit":    {Config{OutputLimit: OutputLimit{Soft: 1000, SoftFor: limit}}, 1001, limit + limit/4, 2 * limit},
		"write stall":   {Config{WriteStallTimeout: limit}, 1, limit + limit/4, 2 * limit},
		"in the kernel": {Config{WriteStallTimeout: limit}, 0, 2*limit + limit/4, 3 * limit},
	} {
		for _, quiet := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/quiet=%v", name, quiet), func(t *testing.T) {
				cfg, within := tc.cfg, tc.within
				cfg.OutageGrace, cfg.Reset = -1, []Kind{}
				if quiet {
					within = tc.quiet
				}
				s := newHandSite(t, &reader{}, cfg)
				conns := s.open(2)
				pass := func(d time.Duration) {
					for end := s.at + d; s.at < end; {
						if !quiet {
							s.receive(conns[1])
						}
						s.pass(t, s.clock.Tick())
					}
				}
				pass(time.Minute)
				s.answer = verdict.Evidence{Queued: 1}
				conns[0].outbound = tc.output
				pass(within + 3*s.clock.Tick())
				require.NotZero(t, s.Stats().Closed)
			})
		}
	}
}

// TestALoopThatHearsSomethingIsCheckedSoon although it was quiet.
func TestALoopThatHearsSomethingIsCheckedSoon(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{OutputLimit: OutputLimit{Hard: 1000}, OutageGrace: -1, Reset: []Kind{}})
	conns := s.open(2)
	s.pass(t, time.Minute+100*time.Millisecond) // a quiet sweep has just passed at 56 s, the next is at 64 s
	conns[0].outbound = 1001
	s.receive(conns[1])
	s.pass(t, time.Second+2*s.clock.Tick())
	require.EqualValues(t, 1, s.Stats().Closed)
}
