package processes

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

const (
	// startTimeout limits the time that a process takes until it is ready.
	startTimeout = 20 * time.Second
	// longestLine is the size in bytes of the longest line of output. A report has histograms.
	longestLine = 1 << 30
)

// A child is a process that this program has started.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done is closed
	errs tail          // its output of errors if it is kept, once done is closed
}

// start starts a process. read handles each line of its output: the first one, which says that the
// process is ready, and in a goroutine the others, until read returns an error.
//
// The child has a process group of its own: Ctrl-C on a terminal does not reach it, and the parent
// ends it in an orderly way. The kernel kills the child when the thread that started it ends, so
// the caller must be the main goroutine, locked to its thread.
func (c *child) start(cmd *exec.Cmd, read func(line []byte) error) error {
	c.cmd, c.done = cmd, make(chan struct{})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(startTimeout, c.kill)
	defer late.Stop()
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, longestLine)
	lines.Scan()
	if err := read(lines.Bytes()); err != nil {
		c.kill()
		ended := cmd.Wait() // all output has arrived
		return errors.Join(fmt.Errorf("%w %s", err, c.errs), ended)
	}
	go func() {
		defer close(c.done)
		for lines.Scan() && read(lines.Bytes()) == nil {
		}
		c.err = cmd.Wait()
	}()
	return nil
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
