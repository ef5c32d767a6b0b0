package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// ErrEngineDied is returned by Run when an event loop has stopped without being asked to. All
// connections are closed. The error text has what gnet logged last.
var ErrEngineDied = errors.New("server: the gnet engine died")

// errShutdown is the cause when the handler stops the server.
var errShutdown = errors.New("the handler has returned gnet.Shutdown")

// An engine is the event loops of a Server. Each of them is a gnet.Client with one loop, and has
// acceptors of its own. A loop that is blocked delays its own connections only: a gnet.Client with
// several loops gives a connection to the loop with the fewest, and waits for it.
type engine struct {
	loops []*gnet.Client
	log   *engineLog
}

// newEngine starts event loops, or none and returns an error.
func newEngine(h gnet.EventHandler, cfg *Config) (*engine, error) {
	e := &engine{log: newEngineLog(cfg.Logger)}
	for i := range cfg.NumEventLoop {
		// Package net has switched Nagle's algorithm off.
		opts := append(slices.Clone(cfg.Options),
			gnet.WithLogger(e.log), gnet.WithNumEventLoop(1), gnet.WithTCPNoDelay(gnet.TCPDelay))
		if cfg.SocketBuffer > 0 { // the kernel takes twice what it is told, for what it needs itself
			opts = append(opts, gnet.WithSocketRecvBuffer(cfg.SocketBuffer/2), gnet.WithSocketSendBuffer(cfg.SocketBuffer/2))
		}
		if i > 0 { // OnTick is for one loop
			opts = append(opts, gnet.WithTicker(false))
		}
		loop, err := gnet.NewClient(h, opts...)
		if err == nil {
			err = loop.Start()
		}
		if err != nil {
			e.stop()
			return nil, fmt.Errorf("server: starting an event loop: %w", err)
		}
		e.loops = append(e.loops, loop)
	}
	return e, nil
}

// stop closes all connections and stops the event loops.
func (e *engine) stop() {
	var stopping sync.WaitGroup
	for _, loop := range e.loops {
		stopping.Go(func() { _ = loop.Stop() }) // the log has the error
	}
	stopping.Wait()
}

// keptErrors is the number of different lines in which gnet may explain the death of an engine: the
// cause and its consequences.
const keptErrors = 8

// loopExits is the start of what gnet logs when an event loop ends. gnet tells it in no other way.
const loopExits = "event-loop(%d) is exiting"

// An engineLog is the logger of gnet. It finds out from the log that an event loop has ended, and
// keeps the last errors: gnet returns neither.
type engineLog struct {
	*slog.Logger
	alive context.Context // done when an event loop has ended
	died  context.CancelFunc

	mu   sync.Mutex
	last []string // guarded by mu
}

func newEngineLog(log *slog.Logger) *engineLog {
	l := &engineLog{Logger: log}
	l.alive, l.died = context.WithCancel(context.Background())
	return l
}

func (l *engineLog) logf(level slog.Level, format string, args []any) {
	if strings.HasPrefix(format, loopExits) {
		l.died()
	}
	if l.Enabled(context.Background(), level) {
		l.Log(context.Background(), level, fmt.Sprintf(format, args...), "from", "gnet")
	}
}

func (l *engineLog) Debugf(format string, args ...any) { l.logf(slog.LevelDebug, format, args) }
func (l *engineLog) Infof(format string, args ...any)  { l.logf(slog.LevelDebug, format, args) }
func (l *engineLog) Warnf(format string, args ...any)  { l.logf(slog.LevelWarn, format, args) }

func (l *engineLog) Errorf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	l.mu.Lock()
	if !slices.Contains(l.last, line) {
		l.last = append(l.last, line)
		l.last = l.last[max(0, len(l.last)-keptErrors):]
	}
	l.mu.Unlock()
	l.logf(slog.LevelError, format, args)
}

// Fatalf logs an error. It does not end the process.
func (l *engineLog) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// lastErrors returns what gnet has logged about the end.
func (l *engineLog) lastErrors() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(strings.Join(l.last, "; "), "gnet does not say why")
}

// An engineHandler is the outermost handler of the event loops. It tells the acceptors which
// connections are open, and stops the server when the handler asks for it: gnet would stop one
// event loop and not tell.
type engineHandler struct {
	*idle.Reaper
	acceptors *acceptors
	stop      context.CancelCauseFunc // of the server
	// registered are the connections that the handler itself has given to an event loop, by
	// Register or Enroll. They need no room.
	registered sync.Map // of gnet.Conn
}

// watch returns the Action for gnet. It calls stop instead of stopping one event loop.
func watch(action gnet.Action, stop context.CancelCauseFunc) gnet.Action {
	if action == gnet.Shutdown {
		stop(errShutdown)
		return gnet.None
	}
	return action
}

// OnBoot does nothing: each event loop calls it, and the handler boots once.
func (h *engineHandler) OnBoot(gnet.Engine) gnet.Action { return gnet.None }

// OnShutdown does nothing, as OnBoot.
func (h *engineHandler) OnShutdown(gnet.Engine) {}

func (h *engineHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if e, ok := c.Context().(*entry); ok {
		e.opened, e.descriptor = true, c.Fd()
		c.SetContext(nil)
		c.SetSafeContext(nil)
	} else {
		h.registered.Store(c, nil)
	}
	out, action := h.Reaper.OnOpen(c)
	return out, watch(action, h.stop)
}

func (h *engineHandler) OnTraffic(c gnet.Conn) gnet.Action {
	return watch(h.Reaper.OnTraffic(c), h.stop)
}

func (h *engineHandler) OnTick() (time.Duration, gnet.Action) {
	delay, action := h.Reaper.OnTick()
	return delay, watch(action, h.stop)
}

func (h *engineHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	action := h.Reaper.OnClose(c, err)
	if _, ok := h.registered.LoadAndDelete(c); !ok {
		h.acceptors.leave(sourcelimit.AddrOf(c.RemoteAddr()))
	}
	return watch(action, h.stop)
}
