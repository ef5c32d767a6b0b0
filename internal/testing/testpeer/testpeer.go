// Package testpeer has peers for tests of servers.
package testpeer

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sendInterval is short, because a longer one would teach the server that such silences are normal.
const sendInterval = 20 * time.Millisecond

// KeepSending sends a byte on all connections, one after the other, every 20 ms. It ends when
// stop is called, or with the test. The test fails in stop if a byte could not be sent.
func KeepSending(t testing.TB, conns []net.Conn) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, c := range conns {
				if _, err := c.Write([]byte("x")); err != nil {
					done <- err
					return
				}
			}
			time.Sleep(sendInterval)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() {
		t.Helper()
		cancel()
		require.NoError(t, <-done)
	}
}
