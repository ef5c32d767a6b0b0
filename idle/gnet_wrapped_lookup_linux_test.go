package idle

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

// TestNoWarningAboutClosedConnections calls Reaper.Conn for connections that are no longer watched.
func TestNoWarningAboutClosedConnections(t *testing.T) {
	t.Parallel()
	cases := []wrappedCase{{layerOutside, []layerKind{asUnwrap}}, {layerInside, []layerKind{asNetConn}}}
	forEachCase(t, cases, func(t *testing.T, w wrappedCase) {
		var log syncbuf.Buffer
		cfg := Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		s := newWrappedSite(t, w, cfg, func(s *wrappedSite, _ *Config) {
			s.closed = func(c gnet.Conn, _ error) gnet.Action {
				_, ok := s.reaper.Conn(c)
				assert.False(t, ok, "Conn has found a connection that is closed")
				return gnet.None
			}
		})
		wrapped, plain := s.dial(t), s.dialPlain(t)
		s.requireReady(t, wrapped)
		require.NoError(t, exchangeMessage(plain))
		require.NoError(t, wrapped.Close())
		require.NoError(t, plain.Close())
		eventually(t, "both connections are closed", func() bool { return len(s.reasons()) == 2 })
		flushLog(s.reaper)
		require.NotContains(t, log.String(), "NetConn")
	})
}

// A passingLayer makes a new wrapper for each event.
type passingLayer struct {
	gnet.EventHandler
	wrap func(gnet.Conn) gnet.Conn
}

func (p passingLayer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	return p.EventHandler.OnOpen(p.wrap(c))
}

func (p passingLayer) OnTraffic(c gnet.Conn) gnet.Action { return p.EventHandler.OnTraffic(p.wrap(c)) }

func (p passingLayer) OnClose(c gnet.Conn, err error) gnet.Action {
	return p.EventHandler.OnClose(p.wrap(c), err)
}

// TestAWrapperForEachEvent has layers that make a new wrapper for each event.
func TestAWrapperForEachEvent(t *testing.T) {
	t.Parallel()
	wraps := map[string]func(gnet.Conn) gnet.Conn{
		"Unwrap":  func(c gnet.Conn) gnet.Conn { return boxedConn{Conn: c} },
		"foreign": func(c gnet.Conn) gnet.Conn { return struct{ gnet.Conn }{c} },
	}
	for name, wrap := range wraps {
		for _, place := range []layerPlace{layerOutside, layerInside} {
			t.Run(fmt.Sprint(place, " ", name), func(t *testing.T) {
				fair.TryParallel(t, func(t testing.TB) {
					hidden := name == "foreign" && place == layerInside
					e := newEcho()
					var r *Reaper
					e.traffic = func(c gnet.Conn) gnet.Action {
						b, _ := c.Next(-1)
						_, _ = c.Write(b)
						conn, watched := r.Conn(c)
						assert.NotEqual(t, hidden, watched, "Conn reports %v", watched)
						conn.Touch()
						return gnet.None
					}
					cfg := Config{ReadTimeout: limitOf, Tick: tickOf, Goodbye: sayReason}
					var h gnet.EventHandler
					if place == layerOutside {
						r = middleware(t, e, cfg)
						h = passingLayer{r, wrap}
					} else {
						r = middleware(t, passingLayer{e, wrap}, cfg)
						h = r
					}
					addr := serve(t, h, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
					silent := dial(t, addr)
					require.NoError(t, exchangeMessage(silent))
					living := dial(t, addr)
					requireAlive(t, living, 2*limitOf)
					requireLastWords(t, silent, "bye: read idle")
					require.Len(t, e.reasons(), 1)
					require.ErrorIs(t, e.reasons()[0], reap.ReadIdle)
					require.Equal(t, 1, r.Connections())
				})
			})
		}
	}
}
