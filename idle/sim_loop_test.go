package idle

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
)

// A simLoop works as a loop of gnet 2.10: it polls, handles some events, and then runs its tasks.
type simLoop struct {
	gnet.EventLoop // for the methods that the Reaper does not use
	*sim.Loop
	w             *simWorld
	order         []*simConn // in the order of opening
	ready         []*simConn
	urgent, tasks []func() error
	perPoll       int // events
	planned       bool
}

func (el *simLoop) Execute(ctx context.Context, run gnet.Runnable) error {
	if el.w.Faulty && el.w.One(200) {
		el.w.N["refused tasks"]++
		el.Away.Add(el.w.Now, el.w.Now+el.w.Set.Tick)
		return errors.New("the simulated loop refuses the task")
	}
	el.post(func() error { el.Ran = true; return run.Run(ctx) })
	return nil
}

func (el *simLoop) Close(c gnet.Conn) error { return el.close(c.(*simConn), nil) }

func (el *simLoop) post(task func() error) {
	el.tasks = append(el.tasks, task)
	el.plan()
}

// plan makes the loop run soon, unless it runs already.
func (el *simLoop) plan() {
	if !el.planned && !el.Running {
		el.planned = true
		el.w.Later(el.w.Now+time.Duration(1+el.w.Rand.IntN(20))*time.Microsecond, el.iterate)
	}
}

func (el *simLoop) iterate() {
	el.planned = false
	if el.Running {
		return
	}
	el.Begin()
	el.poll()
	el.runTasks()
	el.End()
	if len(el.ready)+len(el.urgent)+len(el.tasks) > 0 {
		el.plan()
	}
}

func (el *simLoop) poll() {
	n := min(len(el.ready), el.perPoll)
	events := slices.Clone(el.ready[:n])
	el.ready = slices.Delete(el.ready, 0, n)
	for _, c := range events {
		c.isReady = false
		if c.opened {
			el.w.Pass(time.Microsecond)
			c.handle()
		}
		if c.opened && c.life.Sock.HasInput() { // level-triggered
			c.Readable()
		}
	}
}

func (el *simLoop) runTasks() {
	for i := 0; i < 256 && len(el.urgent)+len(el.tasks) > 0; i++ {
		queue := &el.tasks
		if len(el.urgent) > 0 {
			queue = &el.urgent
		}
		task := (*queue)[0]
		*queue = (*queue)[1:]
		if err := task(); errors.Is(err, gneterrors.ErrEngineShutdown) {
			el.w.Violate(nil, "no engine is asked to stop", "a task returned %v", err)
		}
	}
}

// open registers a connection as gnet does after accept.
func (el *simLoop) open(c *simConn) error {
	c.opened, c.isKnown, el.Called = true, true, true
	el.order = append(el.order, c)
	c.life.Opening()
	open, most := el.w.Open, el.w.Set.MaxConnections
	el.Handles, el.Sheds = c.life, 0
	out, action := el.w.reaper.OnOpen(c)
	if action == gnet.None { // otherwise it is closed
		el.Handles = nil
		c.life.Returned(shedBatch)
	}
	if !c.wasOpened {
		open = max(open, el.w.Open) + len(el.w.loops) // each loop may open one
		el.w.Refused(c.life, most > 0 && open > most)
	} else if c.opened && c.life.IsOpen {
		c.life.Opened()
	}
	if out != nil && c.opened {
		_ = c.write(len(out))
	}
	c.Readable()
	return el.act(c, action)
}

func (el *simLoop) close(c *simConn, err error) error {
	if !c.opened || !c.isKnown {
		return nil
	}
	c.isKnown = false
	el.order = slices.DeleteFunc(el.order, func(other *simConn) bool { return other == c })
	action := el.w.reaper.OnClose(c, err)
	el.w.Pass(10 * time.Microsecond)
	c.opened = false
	el.w.fds[c.fd] = nil
	c.life.Sock.Close()
	return el.act(c, action)
}

func (el *simLoop) act(c *simConn, action gnet.Action) error {
	switch action {
	case gnet.Close:
		return el.close(c, nil)
	case gnet.Shutdown:
		return gneterrors.ErrEngineShutdown
	}
	return nil
}

// A simConn is a connection in gnet. It keeps the number of bytes, not the bytes.
type simConn struct {
	gnet.Conn // for the methods that the Reaper does not use
	el        *simLoop
	life      *sim.Life
	fd        int
	opened    bool
	isKnown   bool // the descriptor is open
	wasOpened bool // the handler has seen it
	isReady   bool
	inbound   int // bytes that handlers have not read
	current   int // bytes just read
	outbound  int
	messages  int
	timers    []*simTimer
	mark      simMark
}

func (c *simConn) Fd() int                   { return c.fd }
func (c *simConn) EventLoop() gnet.EventLoop { return c.el }
func (c *simConn) InboundBuffered() int      { return c.inbound + c.current }
func (c *simConn) OutboundBuffered() int     { return c.outbound }
func (c *simConn) LocalAddr() net.Addr       { return sim.Addrs[c.life.Network] }
func (c *simConn) RemoteAddr() net.Addr      { return sim.Addrs[c.life.Network] }
func (c *simConn) SetLinger(int) error       { return nil }
func (c *simConn) Handle() sim.Handle        { return handle(c.el.w.reaper, c) }
func (c *simConn) Decided() bool             { return false } // the call that decides it closes it

func (c *simConn) CheckOwn() {
	c.checkLow()
	for _, t := range c.timers {
		if s := c.life.Sock; !t.ended && !s.Fin && !s.Rst {
			c.life.CheckDue("a timer is called", t.latest)
		}
	}
}

// Readable makes the loop handle the connection, if there is something to read or to flush.
func (c *simConn) Readable() {
	if c.isReady || !c.opened || !c.life.Sock.HasInput() && !c.canWrite() {
		return
	}
	c.isReady = true
	c.el.ready = append(c.el.ready, c)
	c.el.plan()
}

// Writable makes the loop flush the output, if there is any.
func (c *simConn) Writable() {
	if c.canWrite() {
		c.Readable()
	}
}

func (c *simConn) canWrite() bool { return c.outbound > 0 && c.life.Sock.HasRoom() }

// handle works like processIO of gnet.
func (c *simConn) handle() {
	if c.outbound > 0 {
		c.outbound -= c.life.Sock.Write(c.outbound)
		c.noteOutput()
	}
	c.read()
	for c.opened && c.life.Sock.Fin && !c.life.Sock.Rst {
		c.read()
	}
}

func (c *simConn) read() {
	s := c.life.Sock
	switch {
	case !c.opened || !s.HasInput():
		return
	case s.Rst:
		_ = c.el.close(c, syscall.ECONNRESET)
		return
	case s.IsOver():
		_ = c.el.close(c, io.EOF)
		return
	}
	c.el.Called = true
	c.current = s.Read(64 << 10)
	action := c.traffic()
	c.life.Read()
	if action == gnet.Close {
		_ = c.el.close(c, nil)
		return
	}
	c.life.Returned(shedBatch)
	if c.opened {
		c.inbound += c.current
		c.current = 0
	}
}

func (c *simConn) traffic() gnet.Action {
	c.el.Handles, c.el.Sheds = c.life, 0
	action := c.el.w.reaper.OnTraffic(c)
	if action == gnet.None { // otherwise it is closed
		c.el.Handles = nil
		c.checkHigh()
	}
	return action
}

// write sends bytes of a handler.
func (c *simConn) write(n int) error {
	if c.outbound == 0 {
		if c.life.Sock.Rst {
			_ = c.el.close(c, syscall.EPIPE)
			return syscall.EPIPE
		}
		n -= c.life.Sock.Write(n)
	}
	c.outbound += n
	c.noteOutput()
	return nil
}

func (c *simConn) Write(b []byte) (int, error) {
	if err := c.write(len(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// inTask does something in a task, if the connection is still open then.
func (c *simConn) inTask(do func()) {
	c.el.post(func() error {
		if c.opened {
			do()
		}
		return nil
	})
}

// Close closes the connection in a task.
func (c *simConn) Close() error {
	c.inTask(func() { _ = c.el.close(c, nil) })
	return nil
}

// Wake calls OnTraffic without bytes in a task of high priority.
func (c *simConn) Wake(gnet.AsyncCallback) error {
	c.el.urgent = append(c.el.urgent, func() error {
		if !c.opened {
			return nil
		}
		return c.el.act(c, c.traffic())
	})
	c.el.plan()
	return nil
}
