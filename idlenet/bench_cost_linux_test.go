package idlenet

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkLivingCost measures the processor time that a Listener adds to a process with 9,000
// connections that send a byte twice in each timeout of a minute, as part of one core. The timeout
// is five seconds, and the result is scaled. The same connections are measured before they are
// watched, and that is subtracted.
func BenchmarkLivingCost(b *testing.B) {
	const conns, timeout = 9000, 5 * time.Second
	if testing.Short() {
		b.Skip("20 s")
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	l, err := Listen(inner, Config{ReadTimeout: timeout})
	require.NoError(b, err)
	var clients, accepted []net.Conn
	var reading sync.WaitGroup
	for range conns {
		client, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(b, err)
		c, err := inner.Accept()
		require.NoError(b, err)
		clients, accepted = append(clients, client), append(accepted, c)
		reading.Go(func() {
			for one := make([]byte, 1); ; {
				if _, err := c.Read(one); err != nil {
					return
				}
			}
		})
	}
	sent := 0
	// cost sends and returns the processor time as a part of one core.
	cost := func() float64 {
		const every = timeout / 2 / (conns / 10)
		began, used := time.Now(), processTime()
		for tick := time.NewTicker(every); time.Since(began) < timeout; <-tick.C {
			for range 10 {
				_, err := clients[sent%conns].Write([]byte{1})
				require.NoError(b, err)
				sent++
			}
		}
		return 100 * (processTime() - used).Seconds() / time.Since(began).Seconds()
	}
	for b.Loop() {
		cost() // each connection has sent before it is watched
		before := cost()
		for _, c := range accepted {
			_, err := l.Watch(c)
			require.NoError(b, err)
		}
		cost()
		b.ReportMetric((cost()-before)*timeout.Minutes(), "%-of-a-core")
		b.ReportMetric(before*timeout.Minutes(), "%-of-a-core-before")
	}
	b.ReportMetric(0, "ns/op")
	require.EqualValues(b, conns, l.Connections())
	require.NoError(b, l.Close())
	for i := range clients {
		require.NoError(b, clients[i].Close())
		require.NoError(b, accepted[i].Close())
	}
	reading.Wait()
	eventually(b, "the goroutine ends", func() bool { return !l.isJudging() })
}
