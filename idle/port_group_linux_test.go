package idle

import (
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
)

// TestAnOutageOfOneNetworkOfTwoClosesNoLivingClient cuts half of the clients off for a while: those
// that are reached by one of two networks. Frozen programs among them are closed.
func TestAnOutageOfOneNetworkOfTwoClosesNoLivingClient(t *testing.T) {
	t.Parallel()
	timeout := sequenceConfig.ReadTimeout
	const living, dead = 150, 25
	for _, timeouts := range []float64{0.5, 0.8, 1.5} {
		length := time.Duration(timeouts * float64(timeout))
		t.Run(length.String(), func(t *testing.T) {
			needs.Descriptors(t, 2*(living+dead))
			fair.TryParallel(t, func(t testing.TB) {
				server := startPlay(t, "sequence", "tcp://0.0.0.0:0")
				var cables []*faultynet.Cable
				var fleets []*fleet
				var all []*beats
				for n := range uint64(2) {
					wire := faultynet.New(t)
					f := fleetOf(t, wire, faultynet.PortOf(server.addr), living+dead)
					f.send(living, living+dead, "the last beat")
					cables, fleets = append(cables, wire), append(fleets, f)
					all = append(all, f.beat(living, rand.New(rand.NewPCG(n, 0)), timeout*3/10, timeout*9/10))
				}
				time.Sleep(3 * timeout)
				server.await("the frozen programs are closed", func(a account) bool { return a.closed() == 2*dead })
				mend := cables[0].Lose(t, faultynet.ToServer, faultynet.ToClient)
				time.Sleep(length)
				mend()
				time.Sleep(4 * timeout)
				for n, f := range fleets {
					cut, late := 0, 0
					for i, by := range all[n].end() {
						switch {
						case by > timeout/25:
							late++
						case f.conns[i].closedAt.Load() != 0:
							cut++
						}
					}
					assert.Zero(t, cut, "living clients of network %d were closed, besides %d that were late themselves", n, late)
				}
				server.end()
			})
		})
	}
}

// TestAGroupWithANameIsHeld silences the connections of one name among others from the same
// address. The first byte chooses the name; the byte - takes the connection out of its group again.
func TestAGroupWithANameIsHeld(t *testing.T) {
	t.Parallel()
	const n, timeout = 40, time.Second
	s := newSite(t, Config{ReadTimeout: timeout}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			if conn, _ := s.reaper.Conn(c); b[0] != 'x' {
				conn.SetGroup(string(b[0]))
				if b[0] == '-' {
					conn.SetGroup("")
				}
			}
			return gnet.None
		}
	})
	var some, others []net.Conn
	for range n {
		for name, all := range map[string]*[]net.Conn{"g": &some, "-": &others} {
			c, err := net.Dial("tcp", s.addr.String())
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			_, err = c.Write([]byte(name))
			require.NoError(t, err)
			*all = append(*all, c)
		}
	}
	stop := testpeer.KeepSending(t, some)
	_ = testpeer.KeepSending(t, others)
	time.Sleep(timeout)
	stop()
	stopped := time.Now()
	eventually(t, "the group is held", func() bool { return s.reaper.Stats().Holding })
	require.Equal(t, "group g", s.reaper.Stats().Held[0].Group.String())
	time.Sleep(time.Until(stopped.Add(timeout * 3 / 2)))
	require.Empty(t, s.reasons(), "verdicts are held")
	_ = testpeer.KeepSending(t, some[:1])
	eventually(t, "silent connections are closed", func() bool { return len(s.reasons()) == n-1 })
	require.Empty(t, s.reaper.Stats().Held)
	require.EqualValues(t, 1, s.reaper.Stats().GroupHolds)
}
