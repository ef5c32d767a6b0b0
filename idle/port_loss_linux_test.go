package idle

import (
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/faultynet"

	"github.com/idlewheel/idlewheel/reap"
)

// TestSentBytesAreAWriteThoughTheirAcknowledgementIsLost sends to a peer when its connection has
// been idle for four fifths of the timeout. The peer reads the bytes. Its acknowledgements are
// lost: for 600 ms, or for good. The timeout restarts when the bytes are sent, and not when the
// kernel retransmits them.
func TestSentBytesAreAWriteThoughTheirAcknowledgementIsLost(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	const writeAt = timeout * 4 / 5
	for _, tc := range []struct {
		name   string
		cfg    Config
		reason Reason
		lost   time.Duration
	}{
		{"all idle, lost for 600 ms", Config{AllTimeout: timeout}, reap.AllIdle, 600 * time.Millisecond},
		{"all idle, lost for good", Config{AllTimeout: timeout}, reap.AllIdle, time.Minute},
		{"write idle, lost for 600 ms", Config{WriteTimeout: timeout}, reap.WriteIdle, 600 * time.Millisecond},
		{"write idle, lost for good", Config{WriteTimeout: timeout}, reap.WriteIdle, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			wire := faultynet.New(t)
			opened := make(chan gnet.Conn, 1)
			type noticed struct {
				at time.Time
				ev Event
			}
			events := make(chan noticed, 100)
			e := newEcho()
			e.open = func(c gnet.Conn) ([]byte, gnet.Action) {
				opened <- c
				return nil, gnet.None
			}
			r := middleware(t, e, deciding(tc.cfg, func(_ gnet.Conn, ev Event) gnet.Action {
				events <- noticed{time.Now(), ev}
				return gnet.None
			}))
			addr := serve(t, r, e.booted, "tcp://"+wire.Host()+":0", gnet.WithNumEventLoop(1))
			client := wire.Dial(t, faultynet.PortOf(addr))
			c := <-opened
			began := time.Now()

			time.Sleep(time.Until(began.Add(writeAt - 20*time.Millisecond)))
			mend := wire.Lose(t, faultynet.ToServer)
			time.Sleep(time.Until(began.Add(writeAt)))
			wrote := time.Now()
			require.Less(t, wrote.Sub(began), timeout-100*time.Millisecond, "the machine is too slow for this test")
			require.NoError(t, c.AsyncWrite([]byte("news"), nil))
			b := make([]byte, 16)
			n, err := client.Read(b)
			require.NoError(t, err)
			require.Equal(t, "news", string(b[:n]))
			t.Logf("sent %v after the connection was opened, the peer has read it %v later", wrote.Sub(began), time.Since(wrote))

			var mending sync.WaitGroup
			over := make(chan struct{})
			mending.Go(func() {
				select {
				case <-time.After(time.Until(wrote.Add(tc.lost))):
				case <-over:
				}
				mend()
			})
			ev := <-events
			close(over)
			mending.Wait()
			took := ev.at.Sub(wrote)
			t.Logf("%v %v after the write, %v according to the event", ev.ev.Reason, took, ev.ev.Idle)
			assert.Equal(t, tc.reason, ev.ev.Reason)
			assert.GreaterOrEqual(t, took, timeout, "never early")
			assert.Less(t, took, timeout+300*time.Millisecond+room, "a retransmission is no activity")
		})
	}
}
