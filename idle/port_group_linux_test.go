package idle

import (
	"fmt"
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
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
)

// TestAnOutageOfOneNetworkOfTwoClosesNoLivingClient cuts those clients off for a while that are
// reached by one of two networks. Frozen programs among them are closed.
func TestAnOutageOfOneNetworkOfTwoClosesNoLivingClient(t *testing.T) {
	t.Parallel()
	type outage struct {
		clients  [2]int // of the network that fails, and of the other one
		timeouts float64
	}
	outages := []outage{{[2]int{150, 150}, 0.5}, {[2]int{150, 150}, 0.8}, {[2]int{150, 150}, 1.5}}
	if needs.IsLong() {
		outages = []outage{{[2]int{5000, 5000}, 0.8}, {[2]int{2500, 7500}, 0.8}, {[2]int{625, 9375}, 0.8}}
	}
	timeout := sequenceConfig.ReadTimeout
	for _, tc := range outages {
		t.Run(fmt.Sprintf("%v of %v for %v timeouts", tc.clients[0], tc.clients[0]+tc.clients[1], tc.timeouts), func(t *testing.T) {
			const dead = 25
			if !needs.IsLong() {
				t.Parallel() // first: a test that waits for its turn must not keep descriptors
			}
			needs.Descriptors(t, tc.clients[0]+tc.clients[1]+2*dead)
			fair.Try(t, func(t testing.TB) {
				server := startPlay(t, "sequence", "tcp://0.0.0.0:0")
				var cables [2]*faultynet.Cable
				var fleets [2]*fleet
				var all [2]*beats
				for n, living := range tc.clients {
					cables[n] = faultynet.New(t)
					fleets[n] = fleetOf(t, cables[n], faultynet.PortOf(server.addr), living+dead)
				}
				for n, living := range tc.clients {
					fleets[n].send(0, living+dead, "the first beat")
					all[n] = fleets[n].beat(living, rand.New(rand.NewPCG(uint64(n), 0)), timeout*3/10, timeout*9/10)
				}
				time.Sleep(3 * timeout)
				server.await("the frozen programs are closed", func(a account) bool { return a.closed() == 2*dead })
				mend := cables[0].Lose(t, faultynet.ToServer, faultynet.ToClient)
				time.Sleep(time.Duration(tc.timeouts * float64(timeout)))
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
					t.Logf("network %d: %d clients were late themselves", n, late)
				}
				server.end()
			})
		})
	}
}

// TestAGroupWithANameIsHeld silences the connections of one name among others from the same
// address. The first byte chooses the name; the byte - takes the connection out of its group again.
func TestAGroupWithANameIsHeld(t *testing.T) { fair.TryParallel(t, silenceAGroup) }

func silenceAGroup(t testing.TB) {
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
			c := sockets.Dial(t, "tcp", s.addr.String())
			_, err := c.Write([]byte(name))
			require.NoError(t, err)
			*all = append(*all, c)
		}
	}
	stop := testpeer.KeepSending(t, some)
	_ = testpeer.KeepSending(t, others)
	time.Sleep(2 * timeout)
	stop()
	stopped := time.Now()
	eventually(t, "the group is held", func() bool { return len(s.reaper.Stats().Held) > 0 })
	require.Equal(t, "group g", s.reaper.Stats().Held[0].Group.String())
	time.Sleep(time.Until(stopped.Add(timeout * 3 / 2)))
	require.Empty(t, s.reasons(), "verdicts are held")
	_ = testpeer.KeepSending(t, some[:1])
	eventually(t, "silent connections are closed", func() bool { return len(s.reasons()) == n-1 })
	require.Empty(t, s.reaper.Stats().Held)
	require.EqualValues(t, 1, s.reaper.Stats().GroupHolds)
}
