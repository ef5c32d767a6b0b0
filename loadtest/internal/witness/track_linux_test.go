package witness

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var (
	start0 = time.Unix(1_800_000_000, 0)
	remote = netip.MustParseAddrPort("192.0.2.1:1234")
)

// at returns the moment a number of seconds after the start.
func at(seconds float64) time.Time {
	return start0.Add(time.Duration(seconds * float64(time.Second)))
}

// alive is a socket that is sampled at a moment, and received its last byte at another.
func alive(now, lastByte float64) socket {
	return socket{cookie: 1, remote: remote, state: unix.BPF_TCP_ESTABLISHED, at: at(now), lastByte: at(lastByte), dataIn: 1}
}

// sampleAt takes a sample at a moment.
func (t *tracker) sampleAt(now float64, listening int, listed []socket, freed ...socket) {
	t.sample(at(now), at(now), listed, listening, freed)
}

func TestMissedSocketIsNoClose(t *testing.T) {
	w := newTracker(Report{})
	w.sampleAt(1, 1, []socket{alive(1, 0.5)})
	w.sampleAt(2, 1, nil) // a dump may miss a socket
	w.sampleAt(3, 1, []socket{alive(3, 2.5)})
	require.Equal(t, 1, w.Seen)
	require.True(t, w.conns[1].open())
	require.Zero(t, w.Verdicts[ByPeer])
	require.Equal(t, 2*time.Second, w.conns[1].longest)
}

func TestVanishedSocketWithoutEvent(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newTracker(Report{})
		w.lost = lost
		w.sampleAt(1, 1, []socket{alive(1, 0.5)})
		w.sampleAt(2, 1, nil)
		w.sampleAt(2.9, 1, nil)
		require.Equal(t, !lost, len(w.conns) == 1)
		w.sampleAt(3, 1, nil)
		require.Empty(t, w.conns)
		if !lost { // the server has not closed its descriptor yet
			require.Equal(t, 1, w.Verdicts[ByPeer])
			continue
		}
		require.Len(t, w.Closed, 1)
		require.Equal(t, Unknown, w.Closed[0].Verdict)
		require.Equal(t, at(1.5), w.Closed[0].Closed)
		require.Equal(t, 500*time.Millisecond, w.Closed[0].Within)
	}
}

// TestEventAfterTheDump has an event for a socket that the dump before it still listed.
func TestEventAfterTheDump(t *testing.T) {
	w := newTracker(Report{})
	w.sampleAt(1, 1, []socket{alive(1, 0.5)})
	freed := alive(2.1, 0.5)
	freed.unread, freed.otherOut = 7, 1
	w.sampleAt(2, 1, []socket{alive(2, 0.5)}, freed)
	require.Empty(t, w.Closed)
	w.sampleAt(3, 1, nil)
	require.Len(t, w.Closed, 1)
	require.Equal(t, Connection{
		Remote: remote, Closed: at(2.1), Silent: 1600 * time.Millisecond, Within: resolution, Unread: 7, Sent: true,
	}, w.Closed[0])
	require.Empty(t, w.conns)
}

// TestEventAfterTheListOfClosedSockets has a kernel that lists a closed socket without its last
// byte, or no longer, before it sends the event.
func TestEventAfterTheListOfClosedSockets(t *testing.T) {
	for _, state := range []uint8{unix.BPF_TCP_TIME_WAIT, 0} {
		for _, comes := range []bool{true, false} {
			w := newTracker(Report{})
			w.sampleAt(1, 1, []socket{alive(1, 0.5)})
			for _, now := range []float64{2, 2.5, 2.9, 3} {
				var listed []socket
				if state != 0 {
					listed = []socket{{cookie: 1, remote: remote, state: state, at: at(now)}}
				}
				if comes && now > 2.5 {
					w.sampleAt(now, 1, listed, alive(2.6, 1.8))
				} else {
					w.sampleAt(now, 1, listed)
				}
				open, undecided := w.count()
				require.Zero(t, open)
				require.Equal(t, now < 2.9 || now < 3 && !comes, undecided == 1, "at %v", now)
			}
			if !comes && state == 0 {
				require.Equal(t, 1, w.Verdicts[ByPeer])
				continue
			}
			require.Len(t, w.Closed, 1)
			want := Connection{Closed: at(1.5), Silent: time.Second, Within: 500 * time.Millisecond}
			if comes { // it tells the last byte, and a sample noticed the close before it
				want = Connection{Closed: at(1.9), Silent: 100 * time.Millisecond, Within: 100 * time.Millisecond}
			}
			want.Remote, want.Sent = remote, true
			require.Equal(t, want, w.Closed[0])
		}
	}
}

// TestFinWithoutAcknowledgment has a peer that has vanished: no event comes.
func TestFinWithoutAcknowledgment(t *testing.T) {
	w := newTracker(Report{})
	w.sampleAt(1, 1, []socket{alive(1, 0.5)})
	fin := alive(2, 0.5)
	fin.state = unix.BPF_TCP_FIN_WAIT1
	w.sampleAt(2, 1, []socket{fin})
	require.Len(t, w.Closed, 1)
	require.Equal(t, at(1.5), w.Closed[0].Closed)
	require.Equal(t, time.Second, w.Closed[0].Silent)
	require.Equal(t, 500*time.Millisecond, w.Closed[0].Within)
	w.sampleAt(3, 1, nil, alive(3, 0.5))
	require.Len(t, w.Closed, 1, "it is closed once")
	require.Empty(t, w.conns)
}

func TestShortConnectionsAreCounted(t *testing.T) {
	w := newTracker(Report{})
	listener := socket{cookie: 3}
	w.sampleAt(1, 1, nil, alive(0.9, 0.9)) // before the watch
	w.sampleAt(2, 1, nil, alive(1.5, 1.5), listener)
	require.Equal(t, 1, w.short)
}

func TestShutdownCoversClosesSinceTheListenerWasSeen(t *testing.T) {
	w := newTracker(Report{})
	early, late := alive(1, 0), alive(1, 0)
	late.cookie = 2
	w.sampleAt(1, 1, []socket{early, late})
	freed := func(s socket, now float64) socket { s.at = at(now); s.otherOut++; return s }
	w.sampleAt(2, 1, []socket{late}, freed(early, 1.5), freed(late, 2.1))
	w.sampleAt(3, 0, nil)
	require.Len(t, w.Closed, 2)
	require.Empty(t, w.Closed[0].Verdict)
	require.Equal(t, Shutdown, w.Closed[1].Verdict)
}
