package check

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	buildah(t, "build", "-q", "--isolation", "chroot", "--pull=never", "-f", "../container/Containerfile", "-t", "idlewheel", "../..")

	container := buildah(t, "from", "--pull=never", "localhost/idlewheel")
	// It prints lists as [serve --addr].
	config := buildah(t, "inspect", "--format", "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}", container)
	args := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(config))
	for i, arg := range args {
		if arg == ":7000" { // the network is that of this machine
			args[i] = "127.0.0.1:0"
		}
	}
	runImage(t, container, args)
}

// makeBase makes an image with Go and the downloaded modules.
func makeBase(t *testing.T, name string) {
	t.Helper()
	download := exec.Command("go", "mod", "download")
	download.Dir = "../.."
	out, err := download.CombinedOutput()
	require.NoError(t, err, "%v: %s", err, out)
	c := buildah(t, "from", "scratch")
	for _, dir := range []string{"/tmp", "/root"} { // of the Containerfile's commands
		buildah(t, "copy", "-q", c, t.TempDir(), dir)
	}
	buildah(t, "copy", "-q", c, goEnv(t, "GOROOT"), "/usr/local/go")
	buildah(t, "copy", "-q", c, filepath.Join(goEnv(t, "GOMODCACHE"), "cache/download"), "/modules")
	for _, env := range []string{"PATH=/usr/local/go/bin", "HOME=/root", "GOPROXY=file:///modules", "GOSUMDB=off", "GOTOOLCHAIN=local"} {
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
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(last, "stopped: 1 connections, 1 messages") {
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

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
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
