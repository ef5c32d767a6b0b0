package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// A visit is a test of places. Each connection has a name and an address.
type visit struct {
	places
	conns map[string]*visitor
	ctx   map[string]context.Context
}

func newVisit(most int) *visit {
	return &visit{places{max: most}, map[string]*visitor{}, map[string]context.Context{}}
}

// A visitor is a connection that records that it was closed.
type visitor struct {
	net.Conn
	from   string
	closed bool
}

func (c *visitor) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", c.from)
	if err != nil {
		return &net.UnixAddr{Net: "unix"}
	}
	return addr
}

func (c *visitor) Close() error {
	c.closed = true
	return nil
}

// SyscallConn is that of the real connection, if there is one.
func (c *visitor) SyscallConn() (syscall.RawConn, error) {
	if real, ok := c.Conn.(*net.TCPConn); ok {
		return real.SyscallConn()
	}
	return nil, net.ErrClosed
}

// open opens connections from an address, one for each letter of names.
func (v *visit) open(names, from string) {
	for name := range strings.SplitSeq(names, "") {
		v.conns[name] = &visitor{from: from}
		v.ctx[name] = v.connContext(context.Background(), v.conns[name])
		v.connState(v.conns[name], http.StateNew)
	}
}

// ask sends a request. Its answer is over when the state is set.
func (v *visit) ask(name, path string, trusted bool) {
	v.connState(v.conns[name], http.StateActive)
	v.begin(httptest.NewRequest("GET", path, nil).WithContext(v.ctx[name]), trusted)
}

func (v *visit) state(name string, state http.ConnState) { v.connState(v.conns[name], state) }

// closed returns the names of all closed connections.
func (v *visit) closed() (names string) {
	for name := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz", "") {
		if c := v.conns[name]; c != nil && c.closed {
			names += name
		}
	}
	return names
}

// opens opens connections and checks which ones have been closed since the beginning.
func (v *visit) opens(t *testing.T, names, from, closed string, why ...any) {
	t.Helper()
	v.open(names, from)
	require.Equal(t, closed, v.closed(), why...)
}

func TestTheOldestOfTheLargestNetworkMakesRoom(t *testing.T) {
	v := newVisit(4)
	v.open("a", "10.0.0.1:1")
	v.open("bcd", "10.0.0.2:1")
	require.Empty(t, v.closed())
	v.opens(t, "e", "10.0.0.3:1", "b")
	v.state("b", http.StateClosed) // as net/http does
	v.opens(t, "f", "10.0.0.2:1", "bc", "the newest connection stays, although its network has the most")
	v.state("a", http.StateClosed)
	v.opens(t, "g", "10.0.0.4:1", "bc", "there was room")
	v.state("g", http.StateHijacked)
	v.opens(t, "h", "10.0.0.5:1", "bc", "there was room")
	require.Len(t, v.all, 4)
}

// TestConnectionsOfManyNetworksMakeRoomInTurn has each connection in a network of its own. None of
// them sends a request, or all do.
func TestConnectionsOfManyNetworksMakeRoomInTurn(t *testing.T) {
	for _, busy := range []bool{false, true} {
		v := newVisit(3)
		for i, name := range strings.Split("abcdefgh", "") {
			v.open(name, "10.0."+string('0'+rune(i))+".1:1")
			require.False(t, v.conns[name].closed, "the newest stays")
			if busy {
				v.ask(name, "/metrics", false)
			}
		}
		require.Equal(t, "abcde", v.closed())
	}
}

func TestAnIPv6NetworkCountsOnce(t *testing.T) {
	v := newVisit(4)
	v.open("a", "[2001:db8:0:1::1]:1")
	v.open("b", "[2001:db8:0:2::1]:1")
	v.open("c", "[2001:db8:0:2:ffff::1]:1")
	v.open("d", "[2001:db8:0:2:1:2:3:4%eth0]:1")
	v.open("e", "10.0.0.1:1")
	v.opens(t, "f", "[::ffff:10.0.0.1]:1", "bc")
	v.opens(t, "g", "10.0.0.1:1", "bce", "an address counts as IPv4 if it is mapped to IPv6")
	unix := newVisit(1)
	unix.open("a", "")
	unix.opens(t, "b", "", "a")
}

func TestAConnectionWithTheTokenStays(t *testing.T) {
	v := newVisit(3)
	v.open("abc", "10.0.0.1:1")
	v.ask("a", "/api/connections", true)
	v.state("a", http.StateIdle)
	v.opens(t, "d", "10.0.0.1:1", "b")
	v.ask("a", "/metrics", false)
	v.opens(t, "e", "10.0.0.2:1", "ab", "the last request of a had no token")
	for name := range strings.SplitSeq("cde", "") {
		v.ask(name, "/api/events", true)
	}
	v.opens(t, "f", "10.0.0.3:1", "abc", "all have the token, and one place is for the newest")
}

func TestTheConnectionOfTheNewestProbeStays(t *testing.T) {
	v := newVisit(3)
	v.open("abc", "10.0.0.1:1")
	v.ask("a", "/livez", false)
	v.opens(t, "d", "10.0.0.1:1", "b")
	v.ask("c", "/readyz", false)
	v.opens(t, "e", "10.0.0.1:1", "bd", "a and c answer")
	v.state("a", http.StateIdle)
	v.opens(t, "fgh", "10.0.0.3:1", "abdef", "c is the newest probe")
	v.state("c", http.StateIdle)
	v.opens(t, "i", "10.0.0.1:1", "abcdef", "its probe is answered")
}

// TestAnUnansweredRequestIsNotLost has a probe that is answered while newer probes are, and a
// request that waits in the socket of a connection that was not read yet.
func TestAnUnansweredRequestIsNotLost(t *testing.T) {
	v := newVisit(4)
	v.open("abcd", "10.0.0.1:1")
	v.ask("a", "/readyz", false)
	v.ask("d", "/livez", false)
	l := sockets.Listen(t, "tcp", "127.0.0.1:0")
	client := raw(t, l.Addr().String(), "GET /readyz HTTP/1.1\r\n\r\n")
	var err error
	v.conns["b"].Conn, err = l.Accept()
	require.NoError(t, err)
	defer v.conns["b"].Conn.Close()
	eventually(t, "the request arrives", func() bool { return hasUnread(v.conns["b"]) })
	v.opens(t, "e", "10.0.0.1:1", "c", "a and d answer, b has not read")
	v.opens(t, "f", "10.0.0.2:1", "ce")
	v.opens(t, "g", "10.0.0.1:1", "ace", "all of the network are busy")
	_, err = io.ReadFull(v.conns["b"].Conn, make([]byte, 24))
	require.NoError(t, err)
	v.state("d", http.StateIdle)
	v.opens(t, "h", "10.0.0.1:1", "abce", "b and d are not busy")
	require.NoError(t, client.Close())
}

// TestARequestIsAnsweredForASecond has a probe of which the answer cannot be sent.
func TestARequestIsAnsweredForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisit(2)
		v.open("ab", "10.0.0.1:1")
		v.ask("a", "/readyz", false)
		v.ask("b", "/readyz", false)
		v.state("b", http.StateIdle)
		time.Sleep(answerTime - 1)
		v.opens(t, "c", "10.0.0.1:1", "b")
		time.Sleep(time.Nanosecond)
		v.opens(t, "d", "10.0.0.1:1", "ab")
	})
}

// TestAConnectionHasTimeForItsRequest opens more connections at once than there are places.
func TestAConnectionHasTimeForItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisit(3)
		began := time.Now()
		v.open("a", "10.0.0.1:1")
		v.open("b", "10.0.0.2:1")
		v.open("c", "10.0.0.3:1")
		require.Zero(t, time.Since(began))
		v.open("d", "10.0.0.4:1")
		require.Equal(t, grace, time.Since(began), "until a is as old")
		v.open("e", "10.0.0.5:1")
		require.Equal(t, grace, time.Since(began), "b is as old as a")
		time.Sleep(time.Hour)
		v.open("f", "10.0.0.6:1")
		require.Equal(t, time.Hour+grace, time.Since(began), "c is old")
		require.Equal(t, "abc", v.closed())
	})
}

// TestAFloodOfOneNetworkDelaysLess gives less time to a network with most of the places, because
// other clients wait in the backlog meanwhile.
func TestAFloodOfOneNetworkDelaysLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisit(3)
		began := time.Now()
		v.open("abcdef", "10.0.0.1:1")
		require.Equal(t, shortGrace, time.Since(began), "until a, b and c are as old")
		v.open("gh", "10.0.0.1:1")
		require.Equal(t, 2*shortGrace, time.Since(began), "until e is as old")
		v.open("x", "10.0.0.2:1")
		require.Equal(t, 2*shortGrace, time.Since(began))
		require.Equal(t, "abcdef", v.closed())
	})
}

// TestARequestDuringTheGraceIsNotLost sends a request with the token just before its connection
// would make room, and closes a connection.
func TestARequestDuringTheGraceIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisit(2)
		v.open("a", "10.0.0.1:1")
		v.open("b", "10.0.0.2:1")
		r := httptest.NewRequest("GET", "/api/connections", nil).WithContext(v.ctx["a"])
		time.AfterFunc(grace-1, func() { v.begin(r, true) })
		v.opens(t, "c", "10.0.0.3:1", "b")

		v = newVisit(1)
		v.open("a", "10.0.0.1:1")
		a := v.conns["a"]
		time.AfterFunc(shortGrace-1, func() { v.connState(a, http.StateClosed) })
		v.open("b", "10.0.0.2:1")
		require.Empty(t, v.closed(), "there is room")
	})
}

// TestAProbeWithABodyIsNoProbe has a connection that is open until the body is there.
func TestAProbeWithABodyIsNoProbe(t *testing.T) {
	v := newVisit(1)
	v.open("a", "10.0.0.1:1")
	r := httptest.NewRequest("GET", "/livez", strings.NewReader("x")).WithContext(v.ctx["a"])
	v.begin(r, false)
	require.Nil(t, v.probe)
}

func TestARequestOfAnotherServerHasNoPlace(t *testing.T) {
	h := newHandler(t, Config{Token: rightToken})
	require.Equal(t, 200, call(h, "GET", "/livez", "").status)
	require.Equal(t, 200, call(h, "GET", "/api/config", "").status)
	require.Empty(t, h.places.all)
	require.Nil(t, h.places.probe)
}
