package idle

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
)

const (
	simReadBuffer = 64 << 10
	simMaxTasks   = 256 // of low priority between two polls
	simCloseCost  = 10 * time.Microsecond
	simReadCost   = time.Microsecond
)

var errSimRefused = errors.New("the simulated loop refuses the task")

// A simLoop is an event loop that works as in gnet 2.10: it polls, handles a bounded number of
// events, and then runs its tasks.
type simLoop struct {
	gnet.EventLoop // for the methods that the Reaper does not use
	w              *simWorld
	id             int
	conns          map[int]*simConn // by descriptor
	order          []*simConn       // in the order of opening
	ready          []*simConn
	urgent, tasks  []func() error
	perPoll        int // events
	planned        bool
	running        bool
	began          time.Duration // start of the current iteration
	heardAt        time.Duration // last read
	quietAt        time.Duration // last read that ended a quiet time
	openThen       int           // connections of the server at the start of the current iteration
	away           simIntervals  // times in which one call took long, or a task was refused
	blocks         simIntervals  // the same, counted from seen; tasks of the Reaper separate them
	stalls         simIntervals  // times in which a handler was slow
	seen           time.Duration // end of the last iteration that called the Reaper
	apart          bool          // a task of the Reaper has run since the last block began
	called         bool          // the current iteration has called a handler of the Reaper
	ran            bool          // the current iteration has run a task of the Reaper
	shedAt         time.Duration // the last close of a connection for the total of output
	sheds          int           // connections that the current call has closed for that
	handles        *simConn      // the subject of the current call of OnOpen or OnTraffic
}

func (el *simLoop) Execute(ctx context.Context, run gnet.Runnable) error {
	if el.w.refusesTask() {
		el.w.refused++
		el.away.add(el.w.now, el.w.now+el.w.cfg.Tick)
		return errSimRefused
	}
	el.post(func() error {
		err := run.Run(ctx)
		el.ran = true
		return err
	})
	return nil
}

func (el *simLoop) Close(c gnet.Conn) error { return el.close(c.(*simConn), nil) }

func (el *simLoop) post(task func() error) {
	el.tasks = append(el.tasks, task)
	el.plan()
}

// plan makes the loop run soon, unless it runs already.
func (el *simLoop) plan() {
	if el.planned || el.running {
		return
	}
	el.planned = true
	el.w.later(el.w.now+time.Duration(1+el.w.rng.IntN(20))*time.Microsecond, el.iterate)
}

// iterate is one iteration of the loop.
func (el *simLoop) iterate() {
	el.planned = false
	if el.running {
		return
	}
	el.running = true
	el.began, el.openThen, el.called, el.ran = el.w.now, el.w.open, false, false
	el.poll()
	el.runTasks()
	el.running = false
	if el.w.now-el.began > time.Millisecond {
		el.away.add(el.began, el.w.now)
		el.addBlock()
		el.apart = false
		el.w.trace(nil, "loop", el.id, "was busy since", el.began)
	}
	el.apart = el.apart || el.ran
	if el.called || el.ran {
		el.seen = el.w.now
	}
	if len(el.ready)+len(el.urgent)+len(el.tasks) > 0 {
		el.plan()
	}
}

// hear is called when a byte of a peer is read or found.
func (el *simLoop) hear() {
	if el.isQuiet() {
		el.quietAt = el.w.now
	}
	el.heardAt = el.w.now
}

// isQuiet reports whether output may be checked less often: no peer was heard between two checks.
func (el *simLoop) isQuiet() bool { return el.w.now-el.heardAt > el.w.checkEvery() }

// wasQuiet reports whether the loop may have been quiet since an instant.
func (el *simLoop) wasQuiet(since time.Duration) bool { return el.isQuiet() || el.quietAt >= since }

// addBlock records the iteration that ends now as a block. The Reaper may take the block to begin
// when it last saw the loop run.
func (el *simLoop) addBlock() {
	block := simInterval{min(el.began, el.seen) - el.w.cfg.Tick, el.w.now}
	if n := len(el.blocks); n > 0 && el.apart {
		block.from = max(block.from, el.blocks[n-1].to+1)
	} else if n > 0 && block.from <= el.blocks[n-1].to {
		el.blocks[n-1].to = block.to
		return
	}
	el.blocks = append(el.blocks, block)
}

// stall is a handler that takes long.
func (el *simLoop) stall(d time.Duration) {
	from := el.w.now
	el.w.sleep(d)
	el.stalls.add(from, el.w.now)
}

// certainStalls returns the stalls before an instant that are long enough to count, without those
// in which the process was stopped.
func (el *simLoop) certainStalls(before time.Duration) (all simIntervals) {
	tick := el.w.cfg.Tick
	for _, o := range el.stalls {
		_, stops := el.w.driverAway.overlap(o.from-tick, o.to+tick)
		if o.to <= before && stops == 0 && o.length() > el.w.least()+5*tick {
			all = append(all, o)
		}
	}
	return all
}

func (el *simLoop) poll() {
	n := min(len(el.ready), el.perPoll)
	events := append([]*simConn(nil), el.ready[:n]...)
	el.ready = append(el.ready[:0], el.ready[n:]...)
	for _, c := range events {
		c.isReady = false
		if c.opened {
			el.w.pass(simReadCost)
			c.handle()
		}
		if c.opened && (c.sock.unread > 0 || c.sock.fin || c.sock.rst) { // level-triggered
			c.readable()
		}
	}
}

func (el *simLoop) runTasks() {
	for i := 0; i < simMaxTasks && len(el.urgent)+len(el.tasks) > 0; i++ {
		queue := &el.tasks
		if len(el.urgent) > 0 {
			queue = &el.urgent
		}
		task := (*queue)[0]
		*queue = (*queue)[1:]
		if err := task(); errors.Is(err, gneterrors.ErrEngineShutdown) {
			el.w.violate(nil, "no engine is asked to stop", "a task returned "+err.Error())
		}
	}
}

// open registers a connection as gnet does after accept.
func (el *simLoop) open(c *simConn) error {
	c.opened, el.called = true, true
	el.conns[c.fd] = c
	el.order = append(el.order, c)
	c.sock.life.opening()
	el.handles, el.sheds = c, 0
	out, action := el.w.reaper.OnOpen(c)
	el.handles = nil
	c.sock.life.returned(action)
	if c.sock.life.isRefused = !c.sock.life.isOpen; c.opened && !c.sock.life.isRefused {
		c.sock.life.opened()
	}
	if out != nil && c.opened {
		c.writeOut(len(out))
	}
	c.readable()
	return el.act(c, action)
}

func (el *simLoop) close(c *simConn, err error) error {
	if !c.opened || el.conns[c.fd] == nil {
		return nil
	}
	delete(el.conns, c.fd)
	for i, other := range el.order {
		if other == c {
			el.order = append(el.order[:i], el.order[i+1:]...)
			break
		}
	}
	action := el.w.reaper.OnClose(c, err)
	el.w.pass(simCloseCost)
	c.opened = false
	c.sock.closed = true
	el.w.freeFD(c.fd)
	c.sock.peer.serverClosed()
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
	sock      *simSock
	fd        int
	opened    bool
	isReady   bool
	newPong   bool // the bytes just read are a pong
	inbound   int  // bytes that handlers have not read
	current   int  // bytes just read
	outbound  int
}

var simAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

func (c *simConn) Fd() int                   { return c.fd }
func (c *simConn) EventLoop() gnet.EventLoop { return c.el }
func (c *simConn) InboundBuffered() int      { return c.inbound + c.current }
func (c *simConn) OutboundBuffered() int     { return c.outbound }
func (c *simConn) LocalAddr() net.Addr       { return simAddr }
func (c *simConn) RemoteAddr() net.Addr      { return simAddr }
func (c *simConn) SetLinger(int) error       { return nil }

// take reads bytes from the buffer, as a handler does.
func (c *simConn) take(n int) {
	fromInbound := min(n, c.inbound)
	c.inbound -= fromInbound
	c.current -= min(n-fromInbound, c.current)
}

func (c *simConn) readable() {
	if c.isReady || !c.opened {
		return
	}
	if c.sock.unread == 0 && !c.sock.fin && !c.sock.rst && !c.canWrite() {
		return
	}
	c.isReady = true
	c.el.ready = append(c.el.ready, c)
	c.el.plan()
}

func (c *simConn) canWrite() bool { return c.outbound > 0 && c.sock.queued < c.sock.room }

func (c *simConn) writable() {
	if c.canWrite() {
		c.readable()
	}
}

// handle works like processIO of gnet.
func (c *simConn) handle() {
	if c.outbound > 0 {
		c.flush()
	}
	c.read()
	for c.opened && c.sock.fin && !c.sock.rst {
		c.read()
	}
}

func (c *simConn) flush() {
	c.outbound -= c.sock.write(c.outbound)
	c.sock.life.buffered(c.outbound)
}

func (c *simConn) read() {
	s := c.sock
	switch {
	case !c.opened:
		return
	case s.rst:
		_ = c.el.close(c, syscall.ECONNRESET)
		return
	case s.unread == 0 && s.fin:
		_ = c.el.close(c, io.EOF)
		return
	case s.unread == 0:
		return
	}
	c.el.called = true
	n := min(s.unread, simReadBuffer)
	s.unread -= n
	c.newPong, s.pongUnread = s.pongUnread, false
	c.current = n
	s.life.reading(n)
	c.el.handles, c.el.sheds = c, 0
	action := c.el.w.reaper.OnTraffic(c)
	c.el.handles = nil
	s.life.read()
	s.life.returned(action)
	switch {
	case action == gnet.Close:
		_ = c.el.close(c, nil)
	case c.opened:
		c.inbound += c.current
		c.current = 0
	}
}

// write sends bytes of a handler.
func (c *simConn) write(n int) error {
	if c.outbound == 0 {
		if c.sock.rst {
			_ = c.el.close(c, syscall.EPIPE)
			return syscall.EPIPE
		}
		n -= c.sock.write(n)
	}
	c.outbound += n
	c.sock.life.buffered(c.outbound)
	return nil
}

func (c *simConn) writeOut(n int) { _ = c.write(n) }

func (c *simConn) Write(b []byte) (int, error) {
	if err := c.write(len(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close closes the connection in a task.
func (c *simConn) Close() error {
	c.el.post(func() error { return c.el.close(c, nil) })
	return nil
}

// Wake calls OnTraffic without bytes in a task of high priority.
func (c *simConn) Wake(gnet.AsyncCallback) error {
	c.el.urgent = append(c.el.urgent, func() error {
		if !c.opened {
			return nil
		}
		return c.el.act(c, c.el.w.reaper.OnTraffic(c))
	})
	c.el.plan()
	return nil
}
