package check

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inNamespaceEnv is set in the process of TestOneSourceFitsItsMemory that has a network namespace
// of its own.
const inNamespaceEnv = "IDLEWHEEL_TEST_IN_NAMESPACE"

// TestOneSourceFitsItsMemory measures the formula of docs/run.md in small: one source has as many
// connections as it may have, and sends on all of them at full speed. The sysctls are those of the
// Deployment.
func TestOneSourceFitsItsMemory(t *testing.T) {
	if os.Getenv(inNamespaceEnv) != "" {
		measureSource(t)
		return
	}
	if _, err := exec.LookPath("ss"); err != nil || os.Getuid() != 0 {
		const why = "it needs ss and root, to set sysctls in a network namespace"
		if os.Getenv("CI") == "" {
			t.Skip(why)
		}
		t.Fatal(why)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespaceEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil {
		t.Skipf("this machine allows no network namespace: %v", err)
	}
	t.Logf("%s", out)
	require.NoError(t, err)
}

// measureSource floods a server from one source, and compares its memory with the formula. The
// server is stopped for the last second: it reads nothing then.
func measureSource(t *testing.T) {
	const connections, heap = 200, int64(160 << 20)
	received, toSend := setBuffers(t)
	kernel := connections * (kernelBytes + received + toSend)
	const addr = "127.0.0.1:7000"
	cmd := startWithin(t, heap, max(heap+kernel, 2*heap), addr, connections)
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
		assert.LessOrEqual(t, b.received, connections*received)
		assert.LessOrEqual(t, b.sum(), kernel)
	}
	assert.Greater(t, stopped.received, connections*received/2, "the flood fills the buffers")
	assert.LessOrEqual(t, peak, heap)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "the server was not killed")
}

// setBuffers sets the sysctls of the Deployment, and returns the largest size of either buffer.
func setBuffers(t *testing.T) (received, toSend int64) {
	t.Helper()
	require.NoError(t, exec.Command("ip", "link", "set", "lo", "up").Run())
	largest := make(map[string]int64)
	for _, s := range deployment(t).Spec.Template.Spec.SecurityContext.Sysctls {
		file := "/proc/sys/" + strings.ReplaceAll(s.Name, ".", "/")
		require.NoError(t, os.WriteFile(file, []byte(s.Value), 0))
		sizes := strings.Fields(s.Value)
		largest[s.Name] = int64(atoi(t, sizes[len(sizes)-1]))
	}
	received, toSend = largest["net.ipv4.tcp_rmem"], largest["net.ipv4.tcp_wmem"]
	require.NotZero(t, received*toSend, "the Deployment bounds both")
	return received, toSend
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

// buffersOf asks the kernel about the connections of a server. The memory of TCP in
// /proc/net/sockstat is that of all namespaces.
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
