package kernel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// TestEarlySegments loses a long segment until the network is mended. A short one comes earlier.
func TestEarlySegments(t *testing.T) {
	wire := faultynet.New(t)
	ln := sockets.Listen(t, "tcp", wire.Host()+":0")
	far := wire.Dial(t, faultynet.PortOf(ln.Addr()))
	near, err := ln.Accept()
	require.NoError(t, err)
	defer near.Close()
	p := pair{near, far, fdOf(t, near)}
	mend := wire.LoseIf(t, "ip length > 1000", faultynet.ToServer)
	write(t, far, 1200)
	time.Sleep(100 * time.Millisecond)
	require.Zero(t, ask(p.fd).Early)
	write(t, far, 1)
	ev := p.eventually(t, "a segment comes early", func(ev verdict.Evidence) bool { return ev.Early == 1 })
	require.Equal(t, verdict.Nothing, ev.Found)
	require.Zero(t, ev.Received)
	require.GreaterOrEqual(t, ev.Silent-ev.Answered, 100*time.Millisecond-ev.Step)
	mend()
	p.eventually(t, "all bytes arrive", func(ev verdict.Evidence) bool { return ev.Received == 1201 })
	require.Zero(t, ask(p.fd).Early)
	_, err = near.Read(make([]byte, 2000))
	require.NoError(t, err)
	require.Zero(t, ask(p.fd).Early, "none of the bytes waits for others")
}
