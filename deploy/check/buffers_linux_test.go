package check

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOneSourceFitsItsMemory measures the formula of docs/run.md in small: one source has as many
// connections as it may have, and sends on all of them at full speed. The server is stopped for the
// last second: it reads nothing then.
func TestOneSourceFitsItsMemory(t *testing.T) {
	if _, err := exec.LookPath("ss"); err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	const connections, heap = 200, int64(160 << 20)
	args := deployment(t).Spec.Template.Spec.Containers[0].Args
	buffer := int64(numberOf(t, args, "socket-buffer"))
	kernel := connections * (kernelBytes + 2*buffer)
	addr := freeAddress(t)
	cmd := startWithin(t, heap, max(heap+kernel, 2*heap), addr, append([]string{"--max-per-source=" + strconv.Itoa(connections)}, args...))
	dialWhenReady(t, addr).Close()

	until := time.Now().Add(5 * time.Second)
	var clients sync.WaitGroup
	for range connections / 2 {
		clients.Go(func() { neverRead(addr, until) })
		clients.Go(func() { sendAndRead(addr, until) })
	}
	served := mostBuffers(t, addr, until.Add(-time.Second))
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	stopped := mostBuffers(t, addr, until)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	clients.Wait()
	peak := peakOf(t, cmd.Process.Pid)
	t.Logf("served %+v, stopped %+v, %d bytes by the formula; VmHWM %d bytes of %d", served, stopped, kernel, peak, heap)
	for _, b := range []buffers{served, stopped} {
		assert.LessOrEqual(t, b.received, connections*buffer)
		assert.LessOrEqual(t, b.sum(), kernel)
	}
	assert.Greater(t, stopped.received, connections*buffer/2, "the flood fills the buffers")
	assert.LessOrEqual(t, peak, heap)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "the server was not killed")
}

// buffers are the buffers of the sockets of a server, in bytes.
type buffers struct{ received, reserved, toSend int64 }

func (b buffers) sum() int64 { return b.received + b.reserved + b.toSend }

// mostBuffers returns the largest buffers that the sockets of a server have until an instant.
func mostBuffers(t *testing.T, addr string, until time.Time) (most buffers) {
	t.Helper()
	for time.Now().Before(until) {
		if now := buffersOf(t, addr); now.sum() > most.sum() {
			most = now
		}
		time.Sleep(50 * time.Millisecond)
	}
	return most
}

var skmem = regexp.MustCompile(`skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),`)

// buffersOf asks the kernel about the connections of a server. /proc/net/sockstat has those of the
// whole machine.
func buffersOf(t *testing.T, addr string) (all buffers) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for _, socket := range skmem.FindAllStringSubmatch(output(t, "ss", "-tmnH", "state", "established", "sport", "=", ":"+port), -1) {
		for i, sum := range []*int64{&all.received, &all.reserved, &all.toSend} {
			*sum += int64(atoi(t, socket[1+i]))
		}
	}
	return all
}

// sendAndRead sends requests as fast as it can and reads the answers, until an instant.
func sendAndRead(addr string, until time.Time) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(until)
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		requests := bytes.Repeat([]byte("0123456789abcde\n"), 1<<12)
		for err := error(nil); err == nil; {
			_, err = c.Write(requests)
		}
	})
	_, _ = io.Copy(io.Discard, c)
}
