package witness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestVerdictOfACloseByTheServer(t *testing.T) {
	const second = time.Second
	timeouts := make([]Connection, 5) // they make an idle timeout of ten seconds
	for i := range timeouts {
		timeouts[i] = Connection{Silent: 10 * second, Within: resolution, Sent: true}
	}
	for name, test := range map[string]struct {
		c    Connection
		want Verdict
	}{
		"unread bytes":                     {Connection{Silent: 20 * second, Unread: 1, Sent: true}, AliveUnread},
		"after a message":                  {Connection{Silent: 110 * time.Millisecond, Within: resolution, Sent: true}, AfterMessage},
		"soon, but nothing was sent":       {Connection{Silent: 110 * time.Millisecond, Within: resolution}, Silence},
		"no rhythm":                        {Connection{Silent: second, Sent: true, Gaps: 2, Longest: 5 * second}, Silence},
		"within the rhythm":                {Connection{Silent: 5 * second, Sent: true, Gaps: 3, Longest: 5 * second}, AliveRhythm},
		"a tenth longer":                   {Connection{Silent: 5500 * time.Millisecond, Sent: true, Gaps: 3, Longest: 5 * second}, AliveRhythm},
		"longer than the rhythm":           {Connection{Silent: 5600 * time.Millisecond, Sent: true, Gaps: 3, Longest: 5 * second}, Silence},
		"slow peer, at nine tenths":        {Connection{Silent: 9 * second, Sent: true, Gaps: 3, Longest: 9 * second}, Silence},
		"slow peer, before that":           {Connection{Silent: 8900 * time.Millisecond, Sent: true, Gaps: 3, Longest: 9 * second}, AliveRhythm},
		"either side":                      {Connection{Verdict: Unknown, Unread: 1}, Unknown},
		"with the listener, and not read ": {Connection{Verdict: Shutdown, Unread: 1}, Shutdown},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTracker(Report{})
			w.Closed = append([]Connection{test.c}, timeouts...)
			w.judge(0)
			require.Equal(t, test.want, w.Closed[0].Verdict)
			require.Equal(t, 10*second, w.Timeout.Median)
			require.Equal(t, 15*second, w.KeptAfter)
			require.Equal(t, 3*second, w.Enough)
		})
	}
}

func TestVerdictOfAnOpenConnection(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		timeout, silent, longest time.Duration
		gaps                     int
		state                    uint8
		want                     Verdict
	}{
		"silent":                        {10 * second, 15 * second, 0, 0, unix.BPF_TCP_ESTABLISHED, Open},
		"silent for too long":           {10 * second, 15*second + 1, 0, 0, unix.BPF_TCP_ESTABLISHED, KeptDead},
		"the peer has closed":           {10 * second, 20 * second, 0, 0, unix.BPF_TCP_CLOSE_WAIT, HalfClosed},
		"no timeout and no rhythm":      {0, time.Hour, second, 2, unix.BPF_TCP_ESTABLISHED, Open},
		"no timeout, within the rhythm": {0, 5 * second, second, 3, unix.BPF_TCP_ESTABLISHED, Open},
		"no timeout, rhythm lost":       {0, 5*second + 1, second, 3, unix.BPF_TCP_ESTABLISHED, KeptDead},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTracker(Report{})
			w.conns[1] = &conn{
				last: socket{remote: remote, state: test.state, at: start0, lastByte: start0.Add(-test.silent)}, gaps: test.gaps, longest: test.longest,
			}
			w.judge(test.timeout)
			require.Len(t, w.Open, 1)
			require.Equal(t, test.want, w.Open[0].Verdict)
		})
	}
}

func TestDensestRangeIsTheTimeout(t *testing.T) {
	seconds := func(all ...float64) (d []time.Duration) {
		for _, s := range all {
			d = append(d, time.Duration(s*float64(time.Second)))
		}
		return d
	}
	require.Zero(t, densest(nil))
	require.Zero(t, densest(seconds(1, 1)))
	require.Zero(t, densest(seconds(1, 2, 4, 8)))
	require.Equal(t, Timeout{2 * time.Second, 2200 * time.Millisecond, 2500 * time.Millisecond, 3}, densest(seconds(1, 1.1, 2, 2.2, 2.5, 2.6*2)))
}

func TestHeartbeatFollowsTheRule(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: 0, 600 * time.Millisecond: 100 * time.Millisecond, 4 * time.Second: time.Second, 331 * time.Second: 110 * time.Second,
	} {
		require.Equal(t, want, Heartbeat(timeout))
	}
}
