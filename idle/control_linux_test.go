package idle

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
)

func TestHeldConnectionsAreNotIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, MaxAge: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "request":
				for range 300 { // more than fit in a state
					s.reaper.Hold(c)
				}
				el := c.EventLoop()
				time.AfterFunc(4*limitOf, func() {
					_ = el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
						for range 300 {
							s.reaper.Release(c)
						}
						s.reaper.Release(c) // one too many
						return nil
					}))
				})
			}
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	began := time.Now()
	_, err := c.Write([]byte("request"))
	require.NoError(t, err)
	awaitClose(t, c)
	s.requireReaped(t, began, 5*limitOf, ReadIdle)
}

func TestExemptConnectionsAreNotJudged(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, MaxAge: 2 * limitOf}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			s.reaper.Exempt(c, true)
			return nil, gnet.None
		}
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			s.reaper.Exempt(c, false)
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	time.Sleep(4 * limitOf)
	require.Empty(t, s.reasons())
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	s.requireReaped(t, time.Now(), 0, MaxAge)
}

func TestTimeoutsOfOneConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 2 * limitOf}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			var err error
			switch b, _ := c.Next(-1); string(b) {
			case "short":
				err = s.reaper.SetTimeouts(c, Timeouts{Read: limitOf / 2})
			case "long": // beyond what the clock has to remember so far
				err = s.reaper.SetTimeouts(c, Timeouts{Read: 20 * limitOf})
			case "none":
				err = s.reaper.SetTimeouts(c, Timeouts{})
			case "bad":
				if s.reaper.SetTimeouts(c, Timeouts{Read: -1}) == nil {
					err = errors.New("a negative timeout is taken")
				}
			}
			if err != nil {
				t.Error(err)
			}
			return gnet.None
		}
	})
	began := time.Now()
	closed := map[string]chan time.Duration{}
	for _, what := range []string{"short", "bad", "long", "none"} {
		c := dial(t, s.addr)
		_, err := c.Write([]byte(what))
		require.NoError(t, err)
		done := make(chan time.Duration, 1)
		closed[what] = done
		go func() {
			_, _ = io.Copy(io.Discard, c)
			done <- time.Since(began)
		}()
	}
	short := <-closed["short"]
	require.GreaterOrEqual(t, short, limitOf/2)
	bad := <-closed["bad"]
	require.GreaterOrEqual(t, bad, 2*limitOf, "it keeps that of the Config")
	require.Less(t, short, bad)
	long := <-closed["long"]
	require.GreaterOrEqual(t, long, 20*limitOf)
	require.Less(t, long, 20*limitOf+room)
	require.Len(t, s.reasons(), 3, "none is none")
}

func TestUpdateReachesLiveConnections(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newSite(t, Config{ReadTimeout: time.Hour}, nil)
	require.ErrorContains(t, s.reaper.Update(Config{ReadTimeout: -1}), "Config.ReadTimeout is -1ns")
	require.ErrorContains(t, s.reaper.Update(Config{ReadTimeout: time.Minute, Tick: time.Second}), "Update cannot change it")
	require.Equal(t, time.Hour, s.reaper.Config().ReadTimeout, "an error changes nothing")
	for range n {
		dial(t, s.addr)
	}
	eventually(t, "all are open", func() bool { return s.reaper.Stats().Connections == n })
	time.Sleep(limitOf)
	began := time.Now()
	require.NoError(t, s.reaper.Update(Config{ReadTimeout: 2 * limitOf}))
	eventually(t, "all are reaped", func() bool { return s.reaper.Stats().Reaped.Of(ReadIdle) == n })
	t.Logf("%v after Update", time.Since(began))
	require.NoError(t, s.reaper.Update(Config{ReadTimeout: 20 * limitOf}))
	dial(t, s.addr)
	time.Sleep(4 * limitOf)
	require.Equal(t, 1, s.reaper.Stats().Connections, "a longer one holds at once for new ones")
	require.NoError(t, s.reaper.Update(Config{ReadTimeout: limitOf}))
	eventually(t, "it is reaped", func() bool { return s.reaper.Stats().Connections == 0 })
}

func TestMethodsForAHandlerKnowWhoIsNotWatched(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Minute, MinRate: MinRate{BytesPerSecond: 1}})
	el := newScriptedLoop()
	for _, loopKnown := range []bool{false, true} {
		c := newScriptedConn(el, 1)
		require.False(t, r.MarkReady(c), "%v", loopKnown)
		require.False(t, r.Hold(c))
		require.False(t, r.Release(c))
		require.False(t, r.Touch(c))
		require.False(t, r.Exempt(c, true))
		require.False(t, r.MarkAlive(c))
		require.False(t, r.BeginMessage(c))
		require.False(t, r.EndMessage(c))
		require.ErrorIs(t, r.SetTimeouts(c, Timeouts{}), ErrNotWatched)
		r.OnOpen(c)
		require.True(t, r.MarkReady(c) && r.Hold(c) && r.Release(c) && r.Touch(c) && r.Exempt(c, true) && r.MarkAlive(c) &&
			r.BeginMessage(c) && r.EndMessage(c))
		require.NoError(t, r.SetTimeouts(c, Timeouts{Read: time.Second}))
		r.OnClose(c, nil)
	}
}

func TestSqueezeReachesLiveConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Hour}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			_ = s.reaper.SetTimeouts(c, Timeouts{Read: 2 * time.Hour})
			return gnet.None
		}
	})
	dial(t, s.addr)
	_, err := dial(t, s.addr).Write([]byte("x"))
	require.NoError(t, err)
	eventually(t, "both are open", func() bool { return s.reaper.Stats().Connections == 2 })
	require.NoError(t, s.reaper.ScaleTimeouts(1, limitOf))
	eventually(t, "both are reaped", func() bool { return s.reaper.Stats().Reaped.Of(ReadIdle) == 2 })
	for _, bad := range []float64{-1, 2, math.NaN()} {
		require.Error(t, s.reaper.ScaleTimeouts(bad, 0))
	}
	require.NoError(t, s.reaper.ScaleTimeouts(0, 0))
	dial(t, s.addr)
	time.Sleep(3 * limitOf)
	require.Equal(t, 1, s.reaper.Connections(), "it is taken back")
}
