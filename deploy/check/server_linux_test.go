package check

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClientsThatNeverReadDoNotEndAPod runs the server with the numbers of the Deployment, in a
// control group with its memory limit if this machine allows one. Two hundred clients of one source
// send requests and read nothing.
func TestClientsThatNeverReadDoNotEndAPod(t *testing.T) {
	c := deployment(t).Spec.Template.Spec.Containers[0]
	heap, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	addr := freeAddress(t)
	cmd := startWithin(t, heap, limit, addr, c.Args)
	other := dialWhenReady(t, addr)
	until := time.Now().Add(6 * time.Second)
	var clients sync.WaitGroup
	for range 200 {
		clients.Go(func() { neverRead(addr, until) })
	}
	answers, err := beat(other, until)
	clients.Wait()
	peak := peakOf(t, cmd.Process.Pid)
	t.Logf("VmHWM %d MB; %d answers to another client", peak>>20, answers)
	assert.False(t, err != nil || answers == 0, "another client got %d answers: %v", answers, err)
	assert.LessOrEqual(t, peak, heap, "the server took %d bytes, more than GOMEMLIMIT, %d", peak, heap)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "it did not stop well")
}

// startWithin starts the server with a GOMEMLIMIT and the limits of the Deployment for one source,
// in a control group with a memory limit if this machine allows one.
func startWithin(t *testing.T, heap, limit int64, addr string, args []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(must(t, echoHeartbeat), "serve", "--addr", addr, "--limits", "../kubernetes/limits", "--log-level", "error",
		"--max-connections", "10000", "--max-per-source", strconv.Itoa(numberOf(t, args, "max-per-source")),
		"--socket-buffer", strconv.Itoa(numberOf(t, args, "socket-buffer")))
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", heap))
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	limitMemory(t, cmd.Process.Pid, limit)
	return cmd
}

// limitMemory gives a process a control group of cgroup v1 or v2, if this machine allows one.
func limitMemory(t *testing.T, pid int, limit int64) {
	t.Helper()
	for _, v := range []struct{ parent, name string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		if _, err := os.Stat(filepath.Join(v.parent, "cgroup.procs")); err != nil {
			continue // not a hierarchy
		}
		dir := filepath.Join(v.parent, fmt.Sprintf("idlewheel-check-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, v.name), fmt.Append(nil, limit), 0) == nil {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0))
			return
		}
	}
	t.Log("no control group: only GOMEMLIMIT applies")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

func dialWhenReady(t *testing.T, addr string) net.Conn {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
	}
	t.Fatalf("nothing listens on %s", addr)
	return nil
}

// beat sends heartbeats until an instant, and returns the number of answers.
func beat(c net.Conn, until time.Time) (answers int, err error) {
	lines := bufio.NewReader(c)
	for time.Now().Before(until) {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte("PING\n")); err != nil {
			return answers, err
		}
		if _, err := lines.ReadString('\n'); err != nil {
			return answers, err
		}
		answers++
		time.Sleep(20 * time.Millisecond)
	}
	return answers, nil
}

// neverRead sends requests and never reads, until an instant. When the server resets the
// connection, it opens another one.
func neverRead(addr string, until time.Time) {
	requests := bytes.Repeat([]byte("0123456789abcde\n"), 1<<12)
	for time.Now().Before(until) {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		_ = c.SetDeadline(until)
		for err == nil {
			_, err = c.Write(requests)
		}
		c.Close()
	}
}

// peakOf returns the most memory that a process had, VmHWM of /proc/PID/status.
func peakOf(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	words := strings.Fields(string(text))
	n, err := strconv.ParseInt(words[slices.Index(words, "VmHWM:")+1], 10, 64)
	require.NoError(t, err)
	return n << 10
}

// TestTheImageServes builds the image of the server as its Containerfile says, and runs it. The
// base image is made of the Go installation and the modules of this machine, so that nothing is
// downloaded.
func TestTheImageServes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	if _, err := exec.LookPath("buildah"); err != nil || os.Getuid() != 0 {
		if os.Getenv("CI") == "" {
			t.Skip("it needs buildah and root")
		}
		t.Fatal("it needs buildah and root")
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine allows no containers: %s", out)
	}
	store := t.TempDir()
	conf := fmt.Sprintf("[storage]\ndriver = \"vfs\"\nrunroot = %q\ngraphroot = %q\n", store+"/run", store+"/graph")
	require.NoError(t, os.WriteFile(store+"/storage.conf", []byte(conf), 0o600))
	t.Setenv("CONTAINERS_STORAGE_CONF", store+"/storage.conf")
	makeBase(t, words(stages(t)[0][0])[0])
	args := []string{"build", "-q", "--isolation", "chroot", "--pull=never", "-f", "../container/Containerfile", "-t", "idlewheel"}
	for variable, dir := range mounted {
		from := strings.TrimSpace(output(t, "go", "env", variable))
		args = append(args, "--volume", from+":"+dir)
	}
	buildah(t, append(args, "../..")...)

	container := buildah(t, "from", "--pull=never", "localhost/idlewheel")
	// It prints lists as [serve --addr].
	config := buildah(t, "inspect", "--format", "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}", container)
	args = strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(config))
	for i, arg := range args {
		if arg == ":7000" { // the network is that of this machine
			args[i] = "127.0.0.1:0"
		}
	}
	runImage(t, container, args)
}

// mounted are the places in the image of the directories of Go, by the variables of go env.
var mounted = map[string]string{"GOROOT": "/usr/local/go:ro", "GOMODCACHE": "/modules:rw", "GOCACHE": "/cache:rw"}

// makeBase makes an image for the Go installation of this machine. Buildah looks for its program in
// the image itself.
func makeBase(t *testing.T, name string) {
	t.Helper()
	download := exec.Command("go", "mod", "download")
	download.Dir = "../.."
	out, err := download.CombinedOutput()
	require.NoError(t, err, "%v: %s", err, out)
	c := buildah(t, "from", "scratch")
	buildah(t, "copy", "-q", c, t.TempDir(), "/tmp") // of the Containerfile's commands
	buildah(t, "copy", "-q", c, filepath.Join(strings.TrimSpace(output(t, "go", "env", "GOROOT")), "bin/go"), "/usr/local/go/bin/")
	for _, env := range []string{"PATH=/usr/local/go/bin", "GOMODCACHE=/modules", "GOCACHE=/cache", "GOPROXY=off", "GOTOOLCHAIN=local"} {
		buildah(t, "config", "--env", env, c)
	}
	buildah(t, "commit", "-q", "--rm", c, name)
}

// runImage runs the command of an image, which serves as the user of the image and stops on
// SIGTERM.
func runImage(t *testing.T, container string, args []string) {
	t.Helper()
	cmd := exec.Command("buildah", append([]string{"run", "--isolation", "chroot", container, "--"}, args...)...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "%v says nothing: %s", args, log.String())
	addr, _, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "listening on "), ",")
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	require.NoError(t, err, "%q", lines.Text())
	defer c.Close()
	_, _ = c.Write([]byte("PING\n"))
	if answer, err := bufio.NewReader(c).ReadString('\n'); err != nil || answer != "PONG\n" {
		t.Fatalf("it answers %q, %v", answer, err)
	}
	server := youngest(t, cmd.Process.Pid)
	var status syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", server), &status); err != nil || status.Uid != 65532 {
		t.Errorf("the server is user %d, %v", status.Uid, err)
	}
	require.NoError(t, syscall.Kill(server, syscall.SIGTERM))
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(last, "stopped: 1 connections, 1 reads") {
		t.Errorf("it ends with %v and %q, log: %s", err, last, log.String())
	}
}

// youngest returns the only descendant of a process that has no children.
func youngest(t *testing.T, pid int) int {
	t.Helper()
	for {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		require.NoError(t, err)
		var children []string
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			children = append(children, strings.Fields(string(b))...)
		}
		if len(children) == 0 {
			return pid
		}
		pid, err = strconv.Atoi(children[0])
		require.NoError(t, err)
	}
}

// buildah runs a command of buildah and returns what it prints.
func buildah(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("buildah", args...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	require.NoError(t, err, "buildah %v: %v\n%s", args, err, log.String())
	return strings.TrimSpace(string(out))
}
