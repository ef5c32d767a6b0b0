package idle

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
)

// block keeps the loop busy with a task, and returns when the task has begun. The task of the
// Reaper then runs before the sockets are read.
func block(gc gnet.Conn, d time.Duration) {
	begun := make(chan bool)
	_ = gc.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		close(begun)
		time.Sleep(d)
		return nil
	}))
	<-begun
}

func TestAMessageThatWaitsUnreadIsNotSlow(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := newSite(t, Config{MinRate: MinRate{BytesPerSecond: 100, Window: time.Second}}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			if bytes.Contains(b, []byte("begin")) {
				handle(s.reaper, c).BeginMessage()
			}
			if bytes.Contains(b, []byte("end")) {
				handle(s.reaper, c).EndMessage()
			}
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	gc := <-conns
	_, _ = c.Write([]byte("begin"))
	time.Sleep(200 * time.Millisecond)
	block(gc, 2*time.Second)
	_, _ = c.Write([]byte("end")) // complete 0.2 s after it began
	time.Sleep(3 * time.Second)
	require.Empty(t, s.reasons(), "the message was complete before the end of the window and waits unread")
}

func TestAHandshakeThatWaitsUnreadIsNotMissed(t *testing.T) {
	t.Parallel()
	for _, stall := range []time.Duration{3 * time.Second, 550 * time.Millisecond} {
		conns := make(chan gnet.Conn, 1)
		s := newSite(t, Config{HandshakeTimeout: time.Second, Tick: 100 * time.Millisecond}, func(s *site) {
			s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
			s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); handle(s.reaper, c).Ready(); return gnet.None }
		})
		c := dial(t, s.addr)
		gc := <-conns
		time.Sleep(700 * time.Millisecond)
		block(gc, stall)
		_, _ = c.Write([]byte("login")) // 0.7 s after accept
		time.Sleep(stall + time.Second)
		if len(s.reasons()) > 0 {
			t.Errorf("stall %v: the login, sent at 0.7 s of 1 s, waits unread, and the connection was closed: %v", stall, s.reasons())
		}
	}
}
