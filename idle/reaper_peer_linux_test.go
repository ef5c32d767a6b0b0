package idle

import (
	"errors"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/reap"
)

func TestAHalfClosedConnectionIsClosedAndNotReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, WriteStallTimeout: limitOf}, nil)
	c := dial(t, s.addr)
	eventually(t, "the connection is open", func() bool { return s.reaper.Stats().Connections == 1 })
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	awaitClose(t, c)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.NotErrorIs(t, s.reasons()[0], reap.ReadIdle)
	require.Zero(t, s.reaper.Stats().Reaped.Total())
}

// TestAPeerThatVanishesIsReaped closes a socket without a FIN, as a machine that loses power does.
func TestAPeerThatVanishesIsReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf}, nil)
	c := dial(t, s.addr)
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	var set error
	require.NoError(t, raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
	}))
	if errors.Is(set, unix.EPERM) {
		t.Skip("TCP_REPAIR needs CAP_NET_ADMIN: run as root")
	}
	require.NoError(t, set)
	began := time.Now()
	require.NoError(t, c.Close())
	s.requireReaped(t, began, 0, reap.ReadIdle)
}

func TestAFrozenPeerIsReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 2 * limitOf}, nil)
	_, port, err := net.SplitHostPort(s.addr.String())
	require.NoError(t, err)
	peer := exec.Command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+"; while :; do echo x >&3; sleep 0.05; done")
	require.NoError(t, peer.Start())
	defer func() {
		_ = peer.Process.Kill()
		_ = peer.Wait()
	}()
	eventually(t, "a heartbeat arrives", func() bool { return s.reaper.Stats().Reads > 0 })
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons(), "the peer is alive")
	require.NoError(t, peer.Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	reason := s.requireReaped(t, began, limitOf, reap.ReadIdle)
	require.GreaterOrEqual(t, reason.Lasted, 2*limitOf)
}

// TestACableThatIsPulled deletes the network between the two ends. Neither end is notified.
func TestACableThatIsPulled(t *testing.T) {
	t.Parallel()
	wire := faultynet.New(t)
	e := newEcho()
	r := middleware(t, e, Config{ReadTimeout: limitOf, Tick: tickOf})
	addr := serve(t, r, e.booted, "tcp://0.0.0.0:0", gnet.WithNumEventLoop(1))
	c := wire.Dial(t, addr.(*net.TCPAddr).Port)
	sendEvery(t, c, limitOf/8)
	time.Sleep(3 * limitOf)
	require.Empty(t, e.reasons(), "the peer is alive")
	began := time.Now()
	wire.Pull(t)
	eventually(t, "the connection is reaped", func() bool { return len(e.reasons()) == 1 })
	require.ErrorIs(t, e.reasons()[0], reap.ReadIdle)
	require.GreaterOrEqual(t, time.Since(began), limitOf/2)
	assert.Equal(t, 0, r.Stats().Connections)
}
