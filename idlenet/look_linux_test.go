package idlenet

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAnOutageOfTheNetworkEndsNoLivingConnection loses all packets for longer than the timeout.
// Afterwards silent connections end as before.
func TestAnOutageOfTheNetworkEndsNoLivingConnection(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		const n, timeout = 200, 2 * time.Second
		wire := faultynet.New(t)
		inner := sockets.Listen(t, "tcp", wire.Host()+":0")
		e := serveEcho(t, inner, Config{ReadTimeout: timeout, Tick: 50 * time.Millisecond})
		addr := net.JoinHostPort(wire.Host(), strconv.Itoa(faultynet.PortOf(e.Addr())))
		var conns []net.Conn
		wire.Inside(t, func() {
			for range n {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				conns = append(conns, c)
			}
		})
		t.Cleanup(func() {
			for _, c := range conns {
				_ = c.Close()
			}
		})
		stop := testpeer.KeepSending(t, conns)
		time.Sleep(timeout)
		require.Empty(t, e.ended(), "before the outage")
		mend := wire.Lose(t, faultynet.ToServer, faultynet.ToClient)
		time.Sleep(timeout * 3 / 2)
		mend()
		eventually(t, "the hold is over", func() bool { s := e.Stats(); return s.Suspensions > 0 && !s.Suspended })
		time.Sleep(timeout)
		require.Empty(t, e.ended(), "living connections have ended")
		stop()
		eventually(t, "silent connections end", func() bool { return len(e.ended()) == n })
		for _, err := range e.ended() {
			require.ErrorIs(t, err, reap.ReadIdle)
		}
	})
}

// TestAGroupWithANameIsHeld silences the connections of one name among others from the same
// address.
func TestAGroupWithANameIsHeld(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		const n, timeout = 40, 2 * time.Second
		e := newEcho(t, Config{ReadTimeout: timeout, Tick: 50 * time.Millisecond})
		var some, others []net.Conn
		for range n {
			some, others = append(some, e.dial()), append(others, e.dial())
		}
		for _, c := range append(some, others...) {
			say(t, c, "x")
		}
		peers := map[string]bool{}
		for _, c := range some {
			peers[c.LocalAddr().String()] = true
		}
		e.mu.Lock()
		for _, c := range e.conns {
			e.conn(c).SetGroup("gone")
			if !peers[c.RemoteAddr().String()] {
				e.conn(c).SetGroup("")
			}
		}
		e.mu.Unlock()
		stop := testpeer.KeepSending(t, some)
		_ = testpeer.KeepSending(t, others)
		time.Sleep(2 * timeout)
		stop()
		stopped := time.Now()
		var held []reap.Suspension
		eventually(t, "the group is held", func() bool { held = e.Stats().SuspendedFor; return len(held) > 0 })
		require.Equal(t, reap.Group{Name: "gone"}, held[0].Group)
		require.Less(t, held[0].For, time.Since(stopped)+time.Second)
		time.Sleep(time.Until(stopped.Add(timeout * 3 / 2)))
		require.Empty(t, e.ended(), "verdicts are held")
		testpeer.KeepSending(t, some[:1])
		eventually(t, "the hold is over", func() bool { return len(e.Stats().SuspendedFor) == 0 })
		require.EqualValues(t, 1, e.Stats().GroupSuspensions)
		eventually(t, "silent connections end", func() bool { return len(e.ended()) == n-1 })
	})
}

// TestAHandOverBetweenPathsEndsNoLivingConnection has clients with Multipath TCP, as phones with
// WiFi and a mobile network are. The path by which they have connected is lost.
func TestAHandOverBetweenPathsEndsNoLivingConnection(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		const living, dead, timeout = 100, 10, 1500 * time.Millisecond
		first := faultynet.New(t)
		first.AddPath(t)
		inner := sockets.Listen(t, "tcp", first.Host()+":0")
		e := serveEcho(t, inner, Config{ReadTimeout: timeout, WriteStallTimeout: timeout, Tick: 50 * time.Millisecond})
		var dialer net.Dialer
		dialer.SetMultipathTCP(true)
		var conns []net.Conn
		for range living + dead {
			conns = append(conns, first.DialBy(t, &dialer, faultynet.PortOf(inner.Addr())))
		}
		multipath, err := conns[0].(*net.TCPConn).MultipathTCP()
		require.NoError(t, err)
		require.True(t, multipath, "the kernel of this machine has no Multipath TCP")
		stop := testpeer.KeepSending(t, conns[:living])
		eventually(t, "silent connections end", func() bool { return len(e.ended()) == dead })

		first.Lose(t, faultynet.ToServer, faultynet.ToClient)
		time.Sleep(4 * timeout) // no verdict is held for longer than two
		require.Len(t, e.ended(), dead, "living connections have ended")
		stop()
		eventually(t, "silent connections end", func() bool { return len(e.ended()) == living+dead })
		for _, err := range e.ended() {
			require.ErrorIs(t, err, reap.ReadIdle)
		}
	})
}
