package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// port returns the arguments of redis-cli for a server.
func port(addr string) []string { return []string{"-p", addr[strings.LastIndex(addr, ":")+1:]} }

// TestTimeouts has a client that pings, one that is silent, and one with a timeout of its own.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-read-timeout", recipe.Timeout.String())
	living := recipe.Client(t, "redis-cli", append(port(addr), "-r", "1000", "-i", "0.3", "PING")...)
	living.Await(`(PONG\n){2}`)
	patient := recipe.Client(t, "redis-cli", port(addr)...)
	patient.Say("CLIENT TIMEOUT 600")
	patient.Await("OK")
	silent := recipe.Client(t, "redis-cli", port(addr)...)
	silent.Say("CLIENT TIMEOUT 0")
	silent.Await("set a timeout from 1 to 3600 seconds")
	server.Await(`closed: idle: connection reaped: read idle`)

	list := func() string { return recipe.Run(t, "redis-cli", append(port(addr), "CLIENT", "LIST")...) }
	require.Len(t, strings.Split(strings.TrimSpace(list()), "\n"), 3, "living, patient, and the client that asks")
	patient.Say("CONFIG SET timeout 60")
	patient.Await("OK\nOK")
	time.Sleep(2 * recipe.Timeout)
	require.Equal(t, 1, server.Count("read idle"))
	living.RequireAlive()
	require.NotContains(t, living.Output(), "Error", "redis-cli says so when it connects again")
}

// TestCommands pipelines commands: answers of a CLIENT LIST come in the order of the commands.
func TestCommands(t *testing.T) {
	t.Parallel()
	_, addr := recipe.Serve(t)
	run := func(args ...string) string { return recipe.Run(t, "redis-cli", append(port(addr), args...)...) }
	require.Equal(t, "OK\n", run("SET", "key", "a value"))
	require.Equal(t, "a value\n", run("GET", "key"))
	require.Equal(t, "\n", run("GET", "none"))
	require.Contains(t, run("FLUSHALL"), "ERR unknown command")

	c := recipe.Client(t, "socat", "-", "TCP:"+addr)
	c.Say("*1\r\n$4\r\nPING\r\n*2\r\n$6\r\nCLIENT\r\n$4\r\nLIST\r\n*1\r\n$4\r\nPING\r")
	c.Await(`(?s)PONG.*id=.*PONG`)
}

// TestKill has a client that finds its own id, as the only client, and is killed.
func TestKill(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t)
	victim := recipe.Client(t, "redis-cli", port(addr)...)
	victim.Say("CLIENT LIST")
	id := victim.Await(`id=(\S+)`)[1]
	run := func(args ...string) string { return recipe.Run(t, "redis-cli", append(port(addr), args...)...) }
	require.Contains(t, run("CLIENT", "KILL", "ID", "nonsense"), "ERR")
	require.Equal(t, "OK\n", run("CLIENT", "KILL", "ID", id))
	server.Await("closed: idle: connection reaped: kicked")
	require.Contains(t, run("CLIENT", "KILL", "ID", id), "ERR")
}

// TestAnswersOfOneReadAreBounded has a client that asks for a large value many times at once.
func TestAnswersOfOneReadAreBounded(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	const large = 1 << 19
	_, err = fmt.Fprintf(c, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", large, strings.Repeat("v", large))
	require.NoError(t, err)
	_, err = io.WriteString(c, strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", 600))
	require.NoError(t, err)
	server.Await("closed: ")
	n, _ := io.Copy(io.Discard, c)
	require.Less(t, n, int64(100*large))
}
