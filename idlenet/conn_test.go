package idlenet

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// accepted returns the connection that the server of an echo got for the last dial.
func (e *echo) accepted() *served {
	var last *served
	eventually(e.t, "a connection is accepted", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.conns) > 0 {
			last = e.conns[len(e.conns)-1]
		}
		return len(e.conns) == e.dialled
	})
	return last
}

// open opens a connection, and returns both ends.
func (e *echo) open() (client net.Conn, c *served) {
	client = e.dial()
	return client, e.accepted()
}

const short = 300 * time.Millisecond

func TestReadyEndsTheHandshake(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{HandshakeTimeout: short})
	_, ready := e.open()
	e.conn(ready).Ready()
	say(t, e.dial(), "bytes do not extend it")
	slow := e.accepted()
	eventually(t, "it ends", func() bool { return e.Reason(slow) != nil })
	require.ErrorIs(t, e.Reason(slow), reap.NoHandshake)
	time.Sleep(short)
	require.Nil(t, e.Reason(ready))
}

func TestConnStateHoldsAndForgets(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: short, HandshakeTimeout: 2 * short})
	_, c := e.open()
	e.ConnState(c, http.StateNew)
	e.ConnState(c, http.StateActive)
	e.conn(c).Hold()
	e.conn(c).Release()
	e.conn(c).Release()              // without a Hold
	e.ConnState(c, http.StateActive) // HTTP/2 with another stream
	time.Sleep(3 * short)
	require.Nil(t, e.Reason(c), "a request is being served, and has ended the handshake")
	e.ConnState(c, http.StateIdle)
	eventually(t, "it ends", func() bool { return e.Reason(c) != nil })

	_, c = e.open()
	e.ConnState(c, http.StateActive)
	e.ConnState(c, http.StateHijacked)
	eventually(t, "a hijacked connection is judged by its bytes", func() bool { return e.Reason(c) != nil })

	_, c = e.open()
	require.NotEmpty(t, e.conn(c).ID())
	e.ConnState(c, http.StateClosed)
	require.Empty(t, e.conn(c).ID(), "it is forgotten")
	_ = c.Close()
	eventually(t, "nothing is left", func() bool { return e.Connections() == 0 })
	require.EqualValues(t, 3, e.Stats().Closed)
}

// TestHTTPGetsNoPings has a connection between two requests, where HTTP has no room for a ping, and
// one that was hijacked.
func TestHTTPGetsNoPings(t *testing.T) {
	t.Parallel()
	pings := make(chan net.Conn, 10)
	e := newEcho(t, Config{
		ReadTimeout: time.Hour, Heartbeat: Heartbeat{Interval: short, MaxMissed: 1, Ping: func(c net.Conn) { pings <- c }},
	})
	var all []net.Conn
	for _, state := range []http.ConnState{http.StateNew, http.StateIdle, http.StateHijacked} {
		_, c := e.open()
		all = append(all, c)
		e.ConnState(c, state)
	}
	eventually(t, "the hijacked one ends", func() bool { return e.Reason(all[2]) != nil })
	time.Sleep(3 * short)
	require.Equal(t, all[2].RemoteAddr(), (<-pings).RemoteAddr())
	require.Empty(t, pings)
	require.ErrorIs(t, e.Reason(all[2]), reap.HeartbeatTimeout)
	require.Nil(t, e.Reason(all[0]))
	require.Nil(t, e.Reason(all[1]))
}

// TestTheFirstWindowBeginsWithTheMessage has no other limit, so that nothing else makes the
// connection due.
func TestTheFirstWindowBeginsWithTheMessage(t *testing.T) {
	w := newQuietWorld(t, Config{MinRate: MinRate{BytesPerSecond: 10, Window: time.Second}})
	l := w.accept()
	w.Sleep(5 * time.Second)
	l.Message(true)
	w.Sleep(time.Second + w.Slack())
	require.NotNil(t, l.Ended)
	require.ErrorIs(t, l.Ended, reap.BelowMinRate)
}
