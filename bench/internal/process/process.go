// Package process starts programs that answer questions, and measures processes.
package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a running program. It ends when its input ends.
type Process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	err     error // of the last CPU that failed
}

// Start starts a program.
func Start(cmd *exec.Cmd) (*Process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	return &Process{cmd: cmd, in: in, answers: json.NewDecoder(out)}, cmd.Start()
}

// Netty returns the command that compiles and runs a Java source file, which uses Netty of Debian's
// libnetty-java, and the version of Netty. An error says what is not installed.
func Netty(source string, args ...string) (cmd *exec.Cmd, version string, err error) {
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, "", errors.New("there is no JDK")
	}
	const jars = "/usr/share/java"
	all, err := filepath.Glob(jars + "/netty-*.jar")
	path := strings.Join(append(all, jars+"/jctools-core.jar"), ":")
	common := regexp.MustCompile(`/netty-common-([^:]*)\.jar`).FindStringSubmatch(path)
	if err != nil || common == nil {
		return nil, "", errors.New("there is no netty-common jar in " + jars)
	}
	return exec.Command("java", append([]string{"-cp", path, source}, args...)...), common[1], nil
}

// Answer reads the next value of JSON that the program prints.
func (p *Process) Answer(answer any) error { return p.answers.Decode(answer) }

// Ask writes a line, and reads the answer.
func (p *Process) Ask(question string, answer any) error {
	if _, err := fmt.Fprintln(p.in, question); err != nil {
		return err
	}
	return p.Answer(answer)
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// CPU returns the time that the program has run. Linux only. If it fails, Close returns the error.
func (p *Process) CPU() time.Duration {
	const ofThreads = 2
	clock := ^p.cmd.Process.Pid<<3 | ofThreads // as clock_getcpuclockid(3) returns it
	var t unix.Timespec
	if err := unix.ClockGettime(int32(clock), &t); err != nil {
		p.err = fmt.Errorf("the kernel does not tell the time of a process: %w", err)
	}
	return time.Duration(t.Nano())
}

// Close ends the program and waits for it.
func (p *Process) Close() error { return errors.Join(p.err, p.in.Close(), p.cmd.Wait()) }

// HeapBytes returns the bytes in use on heap and stacks after a garbage collection.
func HeapBytes() int64 {
	runtime.GC()
	runtime.GC() // collects objects with finalizers, and sweeps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// CPU returns the user and system time of this process.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
