package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/syncbuf"

	"github.com/stretchr/testify/require"
)

func TestHangupReloadsTheLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits")
	write := func(lines string) { require.NoError(t, os.WriteFile(file, []byte(lines), 0o600)) }
	write("# while we try it\n\nread-timeout 1h\nmax-age 2h\n")
	var console syncbuf.Buffer
	addr, interrupt := serveOn(t, &console, "--limits", file, "--tick", "20ms")
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = c.Write([]byte("PING\n"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)

	for lines, want := range map[string]string{
		"read-timeout soon\n":            "invalid argument",
		"\n--read-timeout 1s\n":          "line 2: \"--read-timeout 1s\" is not a limit and its value",
		"max-connections 7\n":            "is not a limit and its value",
		"read-timeout 1h\ntick 50ms\n":   "tick 50ms: it stays 20ms until the next start",
		"observe-only # needs a value\n": "is not a limit and its value",
	} {
		write(lines)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(console.String(), want) }, 20*time.Second, time.Millisecond, want)
	}
	for lines, want := range map[string]string{
		"outage-grace -1s\nread-timeout 1h\n":                   "reloaded: read timeout 1h0m0s, tick 20ms, no outage grace\n",
		"read-timeout 1h\noutage-grace 30s\n":                   "reloaded: read timeout 1h0m0s, outage grace 30s, tick 20ms\n",
		"read-timeout 1h\nheartbeat 9s\nheartbeat-jitter 0.1\n": "heartbeat 9s, heartbeat jitter 0.1, tick 20ms\n",
		"read-timeout 1h\nheartbeat 9s\nheartbeat-jitter 1.1\n": "not reloaded: --heartbeat-jitter is 1.1",
	} {
		write(lines)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(console.String(), want) }, 20*time.Second, time.Millisecond, want)
	}
	write("read-timeout 100ms # soon\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(got), "closing: read idle for")
	out := interrupt()
	require.Contains(t, out, "read timeout 1h0m0s, max age 2h0m0s, tick 20ms")
	require.Contains(t, out, "reloaded: read timeout 100ms, tick 20ms\n", "what is not in the file is as on the command line")
}
