package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestHangupReloadsTheLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits")
	write := func(lines string) { require.NoError(t, os.WriteFile(file, []byte(lines), 0o600)) }
	write("# for a test\n\nread-timeout 1h\nmax-age 2h\n")
	var console syncbuf.Buffer
	addr, interrupt := serveOn(t, &console, "--limits", file, "--tick", "20ms")
	reloaded := func(lines, want string) {
		t.Helper()
		write(lines)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(withoutMachine(console.String()), want) }, 20*time.Second, time.Millisecond, want)
	}
	c := sockets.Dial(t, "tcp", addr)
	_, err := c.Write([]byte("PING\n"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)

	for lines, want := range map[string]string{
		"read-timeout soon\n":            `limits, line 1: read-timeout: "soon" is not a duration`,
		"\n--read-timeout 1s\n":          "line 2: the file has no setting \"--read-timeout\"",
		"max-connections -7\n":           "line 1: max-connections is -7",
		"read-timeout 1h\ntick 50ms\n":   "not reloaded: tick is 50ms: it stays 20ms until the next start",
		"observe-only # needs a value\n": "is not a setting and its value",

		"read-timeout 1h\nheartbeat 9s\nheartbeat-jitter 1.1\n": "line 3: heartbeat-jitter is 1.1: set at most 1",
	} {
		reloaded(lines, want)
	}
	for lines, want := range map[string]string{
		"outage-grace -1s\nread-timeout 1h\n":                   "reloaded: read-timeout 1h0m0s, output-limit 1048576, keep-closed 128, outage-grace -1s, tick 20ms\n",
		"read-timeout 1h\noutage-grace 30s\n":                   "reloaded: read-timeout 1h0m0s, output-limit 1048576, keep-closed 128, outage-grace 30s, tick 20ms\n",
		"read-timeout 1h\nheartbeat 9s\nheartbeat-jitter 0.1\n": "heartbeat-jitter 0.1, keep-closed 128, tick 20ms\n",
		"read-timeout 1h\nshed-protect 2s\nkeep-closed 0\n":     "reloaded: read-timeout 1h0m0s, output-limit 1048576, shed-protect 2s, keep-closed 128, tick 20ms\n",
	} {
		reloaded(lines, want)
	}
	reloaded("read-timeout 2h\nmax-connections 50\n", "reloaded: read-timeout 2h0m0s, ")
	require.Contains(t, console.String(), "max-connections 50,")
	reloaded("read-timeout 3h\n", "reloaded: read-timeout 3h0m0s, ")
	require.Equal(t, 1, strings.Count(console.String(), "max-connections 50,"), "it is as at the start again")
	write("read-timeout 100ms # soon\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(got), "closing: read idle for")
	out := withoutMachine(interrupt())
	require.Contains(t, out, "read-timeout 1h0m0s, output-limit 1048576, max-age 2h0m0s, keep-closed 128, tick 20ms")
	require.Contains(t, out, "reloaded: read-timeout 100ms, output-limit 1048576, keep-closed 128, tick 20ms\n", "other settings are as on the command line")
}
