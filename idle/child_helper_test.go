package idle

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
)

// childConfig is the Config of a child process. For a silent peer, the read timeout is the first
// limit that is reached.
var childConfig = Config{
	ReadTimeout: 2 * time.Second, Tick: 100 * time.Millisecond,
	AllTimeout: 2500 * time.Millisecond, WriteStallTimeout: 2500 * time.Millisecond,
	OutputLimit: OutputLimit{Hard: 1 << 20, Soft: 1 << 16, SoftFor: 2500 * time.Millisecond},
	Heartbeat: Heartbeat{
		Interval: 1200 * time.Millisecond, Retry: 400 * time.Millisecond, MaxMissed: 3,
		Ping: func(gnet.Conn) []byte { return []byte("PING\n") },
	},
}

const (
	blockMessage = "block!" // blocks the loop for one and a half timeouts
	panicMessage = "panic!"
)

// runChild is the main function of a child process: an echo server on the given address with two
// loops. It prints its address, and its Stats when its standard input ends.
func runChild(addr string) int {
	e := newEcho()
	e.traffic = func(c gnet.Conn) gnet.Action {
		b, _ := c.Next(-1)
		switch {
		case strings.HasPrefix(string(b), blockMessage):
			time.Sleep(childConfig.ReadTimeout * 3 / 2)
		case strings.HasPrefix(string(b), panicMessage):
			panic("the handler panics")
		}
		_, _ = c.Write(b)
		return gnet.None
	}
	r, err := Middleware(e, childConfig)
	if err != nil {
		panic(err)
	}
	return runEngine(r, e, addr, 2, func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = json.NewEncoder(os.Stdout).Encode(r.Stats())
	})
}

// runEngine runs a handler around an echo until serve returns.
func runEngine(h gnet.EventHandler, e *echo, addr string, loops int, serve func()) int {
	done := make(chan error, 1)
	go func() { done <- gnet.Run(h, addr, gnet.WithLogger(engine.Quiet{}), gnet.WithNumEventLoop(loops)) }()
	var up engine.Boot
	select {
	case up = <-e.booted:
	case err := <-done:
		panic(err)
	}
	fmt.Println(up.Addr.Network(), up.Addr.String())
	serve()
	_ = up.Engine.Stop(context.Background())
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A child is a server in a process of its own, which a test can stop or let panic. A stage has one.
type child struct {
	cmd    *exec.Cmd
	addr   net.Addr
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *strings.Builder
}

func startChild(t testing.TB, addr string) *child {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	c := &child{cmd: exec.Command(exe), stderr: new(strings.Builder)}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), childEnv+"="+addr), c.stderr
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.stdout = bufio.NewReader(out)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	var network, address string
	_, err = fmt.Fscan(c.stdout, &network, &address)
	require.NoError(t, err, "the child must print its address; it printed: %s", c.stderr)
	if network == "unix" {
		c.addr = &net.UnixAddr{Name: address, Net: network}
	} else {
		c.addr, err = net.ResolveTCPAddr(network, address)
		require.NoError(t, err)
	}
	return c
}

// finish ends the child and returns its Stats.
func (c *child) finish(t testing.TB) (s Stats) {
	t.Helper()
	require.NoError(t, c.stdin.Close())
	require.NoError(t, json.NewDecoder(c.stdout).Decode(&s))
	require.NoError(t, c.cmd.Wait(), "%s", c.stderr)
	return s
}
