package idle

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A cable connects this host with a network namespace of its own, until it is pulled.
type cable struct{ space, near string }

// newCable needs root and the ip command; without them the test is skipped.
func newCable(t *testing.T) *cable {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("a network namespace needs the ip command: install iproute2")
	}
	c := &cable{space: fmt.Sprintf("idlewheel%d", os.Getpid()), near: fmt.Sprintf("iw%d", os.Getpid()%1e6)}
	run := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := run("netns", "add", c.space); err != nil {
		t.Skipf("no network namespace can be made here: %v", err)
	}
	t.Cleanup(func() { _ = run("netns", "delete", c.space) })
	require.NoError(t, run("link", "add", c.near, "type", "veth", "peer", "name", "far", "netns", c.space))
	t.Cleanup(func() { _ = run("link", "delete", c.near) }) // if it was not pulled
	require.NoError(t, run("addr", "add", "10.213.7.1/30", "dev", c.near))
	require.NoError(t, run("link", "set", c.near, "up"))
	require.NoError(t, run("-n", c.space, "addr", "add", "10.213.7.2/30", "dev", "far"))
	require.NoError(t, run("-n", c.space, "link", "set", "far", "up"))
	return c
}

// dial connects from the far end.
func (c *cable) dial(t *testing.T, port int) net.Conn {
	t.Helper()
	type outcome struct {
		conn net.Conn
		err  error
	}
	done := make(chan outcome)
	go func() { // its thread ends with it, since it is not unlocked
		runtime.LockOSThread()
		f, err := os.Open("/run/netns/" + c.space)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			f.Close()
		}
		if err != nil {
			done <- outcome{nil, err}
			return
		}
		conn, err := net.Dial("tcp4", fmt.Sprintf("10.213.7.1:%d", port))
		done <- outcome{conn, err}
	}()
	o := <-done
	require.NoError(t, o.err)
	t.Cleanup(func() { o.conn.Close() })
	return o.conn
}

// pull deletes the network between the two ends.
func (c *cable) pull(t *testing.T) {
	t.Helper()
	out, err := exec.Command("ip", "link", "delete", c.near).CombinedOutput()
	require.NoError(t, err, string(out))
}
