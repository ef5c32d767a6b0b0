package processes

import (
	"errors"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// startTimeout limits the time that a process takes until it is ready.
const startTimeout = 20 * time.Second

// A child is a process that this program has started.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done is closed
}

// start starts a process. It is ready when ready returns, which begins to read its output. Then
// listen reads the rest, in a goroutine.
//
// The child has a process group of its own: Ctrl-C on a terminal does not reach it, and the parent
// ends it in an orderly way. The kernel kills the child when the thread that started it ends, so
// the caller must be the main goroutine, locked to its thread.
func (c *child) start(cmd *exec.Cmd, ready func(output io.Reader) error, listen func()) error {
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
	if err := ready(output); err != nil {
		c.kill()
		return errors.Join(err, cmd.Wait())
	}
	go func() {
		defer close(c.done)
		listen()
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
