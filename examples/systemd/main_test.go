package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

const (
	binary = "/usr/local/bin/idlewheel-echo"
	limits = "/etc/idlewheel-echo/limits"
)

func unit(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("idlewheel-echo.service")
	require.NoError(t, err)
	return string(text)
}

// command returns a command of the unit.
func command(t testing.TB, name string) []string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(unit(t))
	require.NotNil(t, found)
	return strings.Fields(found[1])
}

// TestSystemdAcceptsTheUnit checks the unit, with a binary that exists.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "idlewheel-echo.service")
	require.NoError(t, os.WriteFile(name, []byte(strings.ReplaceAll(unit(t), binary, os.Args[0])), 0o600))
	require.Empty(t, recipe.Run(t, "systemd-analyze", "verify", "--man=no", name))
}

// TestReload runs the commands of the unit in the place of systemd.
func TestReload(t *testing.T) { fair.TryParallel(t, testReload) }

func testReload(t testing.TB) {
	dir, err := os.MkdirTemp("", "recipe") // a path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	notified, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer notified.Close()
	awaitState := func(want string) {
		t.Helper()
		require.NoError(t, notified.SetReadDeadline(time.Now().Add(20*time.Second)))
		state := make([]byte, 1000)
		n, err := notified.Read(state)
		require.NoError(t, err)
		require.Contains(t, string(state[:n]), want)
	}
	file := filepath.Join(dir, "limits")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	text, err := os.ReadFile("limits")
	require.NoError(t, err)
	write(string(text))

	start := command(t, "ExecStart")
	require.Equal(t, binary, start[0])
	require.Contains(t, start, limits)
	cmd := recipe.Command(strings.Fields(strings.NewReplacer(":7000", "127.0.0.1:0", limits, file, "5s", "1s", "20s", "2s").Replace(strings.Join(start[1:], " ")))...)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+notified.LocalAddr().String())
	server := recipe.Start(t, cmd)
	awaitState("READY=1")
	addr := server.Await(`listening on (\S+)`)[1]
	reload := func() {
		t.Helper()
		kill := command(t, "ExecReload")
		for i := range kill {
			kill[i] = strings.ReplaceAll(kill[i], "$MAINPID", strconv.Itoa(server.Process.Pid))
		}
		require.NoError(t, exec.Command(kill[0], kill[1:]...).Run())
	}

	silent := recipe.Client(t, "socat", "-", "TCP:"+addr)
	silent.Say("hello")
	silent.Await("hello")
	write("read-timeout never\n")
	reload()
	awaitState("not reloaded: ")
	write("read-timeout " + recipe.Timeout.String() + "\n")
	reload()
	awaitState("reloaded: read-timeout 1.5s")
	server.Await("closed: idle: connection reaped: read idle .*limit 1.5s")
	require.Zero(t, silent.AwaitEnd())

	living := recipe.Client(t, "socat", "-", "TCP:"+addr)
	recipe.Live(living)
	living.RequireAlive()
	write("read-timeout 60s\n")
	reload()
	awaitState("reloaded: read-timeout 1m0s")
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	server.Await("closed: idle: connection reaped: drained")
	require.Zero(t, server.AwaitEnd())
	require.Equal(t, 2, server.Count("closed:"))
}
