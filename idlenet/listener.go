package idlenet

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

var _ net.Listener = (*Listener)(nil)

// A Listener is a net.Listener. Its Reaper watches the connections that it accepts. [Listen] and
// [Reaper.Listen] make one. It has all methods of its [Reaper], such as AttachHTTP, Conn, Reason,
// Drain, Update and Stats, which act on the connections of all listeners of the Reaper. Its methods
// are safe for concurrent use.
type Listener struct {
	*Reaper
	inner  net.Listener
	closed atomic.Bool
}

// Listen returns a Listener around inner, a listener of TCP or unix sockets, with a Reaper of its
// own. The error joins all mistakes in the Config. It names the limits that the sockets of inner
// cannot keep.
func Listen(inner net.Listener, cfg Config) (*Listener, error) {
	var addr net.Addr
	if inner != nil {
		addr = inner.Addr()
	}
	checked, err := cfg.check(addr, 0, nil)
	if err = errors.Join(checkInner(inner), err); err != nil {
		return nil, err
	}
	return newReaper(checked, mono.Real(), askKernel).Listen(inner)
}

func checkInner(inner net.Listener) error {
	if inner == nil {
		return errors.New("idlenet: the listener is nil: pass the net.Listener to wrap")
	}
	return nil
}

// Listen returns a Listener around inner, a listener of TCP or unix sockets. The limits of the
// Reaper hold for the connections of all its listeners together. The error names the limits of the
// Config that the sockets of inner cannot keep.
func (r *Reaper) Listen(inner net.Listener) (*Listener, error) {
	if err := checkInner(inner); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkKind(inner.Addr()); err != nil {
		return nil, err
	}
	r.listening.Add(1)
	return &Listener{Reaper: r, inner: inner}, nil
}

// Accept waits for the next connection and watches it. It returns the connection of the inner
// listener itself, unless Config.Stamp is set. Errors are those of the inner listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.inner.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) { // by its owner, perhaps
				l.noteClosed()
			}
			return nil, err
		}
		if !l.admit(c, l.awaitRoom) {
			_ = c.Close()
			continue
		}
		if c, err = l.add(c, 0); err != nil {
			l.watch.Warn(&l.warnings.foreign, "a connection is not watched: no limit applies to it", "error", err)
		}
		return c, nil
	}
}

// awaitRoom waits until there is room for one more connection, if the Config says so. It reports
// whether there is.
func (l *Listener) awaitRoom() bool {
	for ; ; time.Sleep(l.watch.Clock.Tick()) {
		switch set := l.watch.Settings(); {
		case !set.Front.(*Config).WaitForRoom, set.Draining(), l.closed.Load():
			return false
		case l.makeRoom():
			return true
		}
	}
}

// Close closes the inner listener. The connections stay, and are watched until they close.
func (l *Listener) Close() error {
	l.noteClosed()
	return l.inner.Close()
}

// noteClosed takes note that the inner listener is closed.
func (l *Listener) noteClosed() {
	if !l.closed.Swap(true) && l.listening.Add(-1) == 0 {
		l.watch.Wake()
	}
}

// Addr returns the address of the inner listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }
