// Package process starts programs that answer questions, and measures its own process.
package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	return &Process{cmd, in, bufio.NewReader(out)}, cmd.Start()
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

// Close ends the program and waits for it.
func (p *Process) Close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

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
