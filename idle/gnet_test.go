package idle

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

// A boxedConn is a wrapper that is not a pointer. Each conversion to gnet.Conn gives it another
// address.
type boxedConn struct {
	gnet.Conn
	_ [2]int
}

func (v boxedConn) Unwrap() gnet.Conn { return v.Conn }

// A shellConn is a wrapper with a NetConn that may return another connection than the embedded
// one.
type shellConn struct {
	gnet.Conn
	inside gnet.Conn
}

func (s *shellConn) NetConn() gnet.Conn { return s.inside }

// TestConnFindsTheConnectionInsideWrappers needs no server.
func TestConnFindsTheConnectionInsideWrappers(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Minute, MinRate: MinRate{BytesPerSecond: 1}})
	c := newScriptedConn(newScriptedLoop(), 1)
	r.OnOpen(c)
	defer r.OnClose(c, nil)
	deep := gnet.Conn(c)
	for range 20 {
		deep = &shellConn{deep, deep}
	}
	itself := &shellConn{Conn: c}
	itself.inside = itself
	mutual := &shellConn{Conn: c}
	mutual.inside = &shellConn{c, mutual}
	for _, test := range []struct {
		name  string
		conn  gnet.Conn
		found bool
	}{
		{"gnet's", c, true},
		{"NetConn", &shellConn{c, c}, true},
		{"Unwrap", boxedConn{Conn: c}, true},
		{"Unwrap of NetConn", boxedConn{Conn: &shellConn{c, c}}, true},
		{"many", deep, true},
		{"none", struct{ gnet.Conn }{c}, false},
		{"nil inside", &shellConn{c, nil}, false},
		{"itself inside", itself, false},
		{"each other inside", mutual, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, found := r.Conn(test.conn)
			require.Equal(t, test.found, found)
		})
	}
}

// TestAWrapperForEachEvent has layers that make a new wrapper for each event.
func TestAWrapperForEachEvent(t *testing.T) {
	for _, wrap := range []func(gnet.Conn) gnet.Conn{
		func(c gnet.Conn) gnet.Conn { return &shellConn{c, c} },
		func(c gnet.Conn) gnet.Conn { return boxedConn{Conn: c} },
		func(c gnet.Conn) gnet.Conn { return struct{ gnet.Conn }{c} },
	} {
		s := newHandSite(t, &gnet.BuiltinEventEngine{}, Config{ReadTimeout: time.Hour})
		c := newScriptedConn(s.el, 1)
		s.OnOpen(wrap(c))
		c.buffered = 1
		s.OnTraffic(wrap(c))
		s.OnClose(wrap(c), nil)
		require.Zero(t, s.Connections())
		require.EqualValues(t, 1, s.Stats().Reads)
	}
}

// TestAForeignConnectionIsLoggedOnce asks for such connections for a minute. Other warnings repeat
// each second. A connection that is closed is not foreign.
func TestAForeignConnectionIsLoggedOnce(t *testing.T) {
	var log syncbuf.Buffer
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	conns := s.open(4)
	closed := conns[3]
	s.OnClose(closed, nil)
	for _, c := range []gnet.Conn{closed, &shellConn{closed, closed}, boxedConn{Conn: closed}} {
		_, watched := s.Reaper.Conn(c)
		require.False(t, watched)
	}
	flushLog(s.Reaper)
	require.Empty(t, log.String())
	conns = conns[:3]
	for range 60 {
		for _, c := range conns {
			conn, watched := s.Reaper.Conn(struct{ gnet.Conn }{c})
			require.False(t, watched)
			conn.Touch()
		}
		s.pass(t, time.Second)
	}
	flushLog(s.Reaper)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	require.Contains(t, log.String(), "NetConn or Unwrap", "the warning says how to fix the wrapper")
}
