package idle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	const s = time.Second
	exactly := func(silent time.Duration) evidence { return evidence{exact: true, silent: silent} }
	event := func(first bool, idle, late time.Duration) Event {
		return Event{Kind: ReadIdle, First: first, Timeout: 10 * s, Idle: idle, Late: late}
	}
	for _, tc := range []struct {
		name    string
		heard   time.Duration // the stamp says: in the second before
		noticed time.Duration
		now     time.Duration
		ev      evidence
		want    verdict
	}{
		{
			"silent, and the kernel cannot say for how long",
			20 * s, 0, 30 * s, evidence{},
			verdict{idle: true, event: event(true, 10*s, s), next: 40 * s},
		}, {
			"silent, and the kernel knows it exactly",
			20 * s, 0, 31 * s, exactly(11*s + s/2),
			verdict{idle: true, event: event(true, 11*s+s/2, s+s/2), next: 41 * s},
		}, {
			"the kernel counts from the arrival, the reaper from the end of a slow handler",
			20 * s, 0, 31 * s, exactly(25 * s),
			verdict{idle: true, event: event(true, 12*s, 2*s), next: 41 * s},
		}, {
			"bytes wait unread, as after a stall",
			20 * s, 0, 31 * s, evidence{found: unread},
			verdict{heard: 31 * s, next: 41 * s},
		}, {
			"the peer has closed",
			20 * s, 0, 31 * s, evidence{found: ended},
			verdict{next: 41 * s},
		}, {
			"bytes were read that the stamps have missed",
			20 * s, 0, 31 * s, exactly(3 * s),
			verdict{heard: 28*s + kernelStep, next: 38*s + kernelStep},
		}, {
			"bytes were missed, but even so it is idle",
			20 * s, 0, 35 * s, exactly(12 * s),
			verdict{idle: true, event: event(true, 12*s, 2*s), next: 45 * s},
		}, {
			"a difference within the resolution of the kernel is none",
			20 * s, 0, 30 * s, exactly(10*s - kernelStep/2),
			verdict{idle: true, event: event(true, 10*s, 0), next: 40 * s},
		}, {
			"a second event",
			20 * s, 30 * s, 41 * s, evidence{},
			verdict{idle: true, event: event(false, 21*s, s), next: 51 * s},
		}, {
			"a second event, and the kernel knows",
			20 * s, 30 * s, 41 * s, exactly(21*s + s/2),
			verdict{idle: true, event: event(false, 21*s+s/2, s), next: 51 * s},
		}, {
			"heard again after an event",
			35 * s, 30 * s, 46 * s, evidence{},
			verdict{idle: true, event: event(true, 11*s, 2*s), next: 56 * s},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := silence{timeout: 10 * s, heardAfter: tc.heard - s, heard: tc.heard, noticed: tc.noticed}
			require.LessOrEqual(t, q.deadline(), tc.now, "judged when its deadline has passed")
			require.Equal(t, tc.want, q.judge(tc.now, tc.ev))
		})
	}
}

// TestJudgeIsNeverEarly tries everything on a grid: an idle event needs a whole timeout of silence, whatever is known.
func TestJudgeIsNeverEarly(t *testing.T) {
	const step, timeout = 100 * time.Millisecond, time.Second
	for heard := step; heard < 20*step; heard += step {
		for noticed := time.Duration(0); noticed < 30*step; noticed += step {
			q := silence{timeout: timeout, heardAfter: heard - step, heard: heard, noticed: noticed}
			for now := q.deadline(); now < 50*step; now += step {
				for silent := time.Duration(0); silent <= now; silent += step {
					v := q.judge(now, evidence{exact: true, silent: silent})
					if v.idle && v.event.Idle < timeout {
						t.Fatalf("%+v at %v with a silence of %v: %+v", q, now, silent, v)
					}
					if v.idle && v.event.Late < 0 {
						t.Fatalf("%+v at %v with a silence of %v is early: %+v", q, now, silent, v)
					}
					if !v.idle && v.next <= now {
						t.Fatalf("%+v at %v: the next look lies in the past: %+v", q, now, v)
					}
				}
			}
		}
	}
}

func TestStatesReuseIDsAndNeverMove(t *testing.T) {
	var s states
	first, p := s.take()
	p.leftover = 7
	for range 10 * statePiece {
		s.take()
	}
	require.Same(t, p, s.at(first))
	s.put(first)
	again, q := s.take()
	require.Equal(t, first, again)
	require.Zero(t, *q, "a new connection begins with nothing of the old")
}
