// Package process starts programs that answer questions, and measures its own process.
package process

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A Process is a running program. It ends when its input ends.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err error // of the last CPU that failed
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
	return &Process{cmd: cmd, in: in, out: bufio.NewReader(out)}, cmd.Start()
}

// ReadLine returns the next line of output.
func (p *Process) ReadLine() (string, error) {
	line, err := p.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Ask writes a line, and reads a line of JSON into the answer.
func (p *Process) Ask(question string, answer any) error {
	if _, err := fmt.Fprintln(p.in, question); err != nil {
		return err
	}
	line, err := p.ReadLine()
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(line), answer)
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// CPU returns the time that the threads of the program have run. Linux only. If it fails, Close
// returns the error.
func (p *Process) CPU() (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err == nil && len(threads) == 0 {
		err = errors.New("the kernel does not tell the time of threads")
	}
	for _, path := range threads {
		var ran time.Duration
		text, readErr := os.ReadFile(path)
		if readErr == nil { // else the thread has ended
			_, err = fmt.Sscan(string(text), &ran)
		}
		sum += ran
	}
	p.err = cmp.Or(err, p.err)
	return sum
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
