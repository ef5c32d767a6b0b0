package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// TestSlowClient sends 64 MiB to a client that is stopped, and to one that reads. Both know of each
// line whether it was dropped, and the server keeps none of them.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	const lines, line = 64 << 10, 1 << 10
	server, addr := recipe.Serve(t)
	slow := recipe.Client(t, "socat", "-u", "TCP:"+addr, "-")
	slow.Await("are here")
	require.NoError(t, slow.Process.Signal(syscall.SIGSTOP))
	sender, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer sender.Close()
	before := memory(t, server)
	read := make(chan *counter)
	go func() {
		c := &counter{}
		for s := bufio.NewScanner(sender); c.next < lines && s.Scan(); {
			c.add(s.Text())
		}
		read <- c
	}()
	padding := bytes.Repeat([]byte("x"), line-10)
	b := bufio.NewWriterSize(sender, 1<<16)
	for n := range lines {
		_, err := fmt.Fprintf(b, "%08d %s\n", n, padding)
		require.NoError(t, err)
	}
	require.NoError(t, b.Flush())
	fast := <-read
	after := memory(t, server)

	require.NoError(t, slow.Process.Signal(syscall.SIGCONT))
	late := &counter{}
	recipe.Eventually(t, "the slow client knows of all lines", func() bool {
		*late = counter{}
		for l := range strings.Lines(slow.Output()) {
			late.add(l)
		}
		return late.next == lines
	})
	t.Logf("memory %d KiB, then %d KiB; the slow client has %+v, the fast one %+v", before>>10, after>>10, *late, *fast)
	require.Empty(t, late.wrong+fast.wrong)
	require.Greater(t, late.dropped, lines/2)
	require.Less(t, after-before, lines*line/2, "the server does not keep what the slow client does not read")
	server.RequireNone("closed")
}

// A counter checks that the numbers of lines follow each other, except for those that were dropped.
type counter struct {
	next, dropped int
	wrong         string
}

func (c *counter) add(line string) {
	var n int
	if _, err := fmt.Sscanf(line, "* %d lines dropped", &n); err == nil {
		c.next += n
		c.dropped += n
	} else if _, err := fmt.Sscanf(line, "%d x", &n); err == nil {
		if n != c.next && c.wrong == "" {
			c.wrong = fmt.Sprintf("line %d follows %d", n, c.next-1)
		}
		c.next = n + 1
	}
}

// memory returns the resident memory of a process, in bytes.
func memory(t *testing.T, p *recipe.Process) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(b), "VmRSS:")
	require.True(t, found)
	_, err = fmt.Sscan(rest, &kib)
	require.NoError(t, err)
	return kib << 10
}
