package idle

import (
	"context"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

func TestInspectKickAndClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Minute, KeepClosed: 2}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "hold":
				handle(s.reaper, c).Hold()
			case "flood":
				flood(16 << 20)(c)
			case "ready":
				handle(s.reaper, c).Ready()
			case "exempt":
				handle(s.reaper, c).Exempt(true)
			}
			return gnet.None
		}
	})
	names := map[string]string{}
	for _, what := range []string{"nothing", "hold", "flood", "ready", "exempt"} {
		c := dial(t, s.addr)
		names[c.LocalAddr().String()] = what
		if what != "nothing" {
			_, err := c.Write([]byte(what))
			require.NoError(t, err)
			eventually(t, "the message is read", func() bool {
				all, err := list(t.Context(), s.reaper, "age", 10)
				return err == nil && len(all) == len(names) && all[len(all)-1].Received > 0
			})
		}
		time.Sleep(limitOf / 4)
	}
	show := func(by string, limit int) (all []ConnInfo, shown []string) {
		all, err := list(t.Context(), s.reaper, by, limit)
		require.NoError(t, err)
		for _, i := range all {
			shown = append(shown, names[i.Remote.String()])
		}
		return all, shown
	}
	all, shown := show("age", 10)
	require.Equal(t, []string{"nothing", "hold", "flood", "ready", "exempt"}, shown)
	for i, want := range []string{"handshake", "held", "handshake", "open", "exempt"} {
		require.Equal(t, want, all[i].State)
	}
	require.EqualValues(t, 4, all[1].Received)
	require.Greater(t, all[0].Age, limitOf)
	require.Greater(t, all[0].ReadIdle, limitOf)
	require.NotZero(t, all[0].Due)
	_, shown = show("idle", 2)
	require.Equal(t, []string{"nothing", "hold"}, shown)
	all, shown = show("output", 1)
	require.Equal(t, []string{"flood"}, shown)
	require.Greater(t, all[0].Output, 1<<20)
	_, shown = show("output", 0)
	require.Empty(t, shown)
	_, err := list(t.Context(), s.reaper, "name", 1)
	require.ErrorContains(t, err, `Query.By is "name"`)

	all, _ = show("age", 10)
	for i, info := range all[:3] {
		id := info.ID
		require.NoError(t, s.reaper.Kick(t.Context(), id))
		require.ErrorIs(t, s.reason(t, i), reap.Kicked)
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrNotWatched)
	}
	found, err := s.reaper.Inspect(t.Context(), Query{Closed: true})
	require.NoError(t, err)
	closed := found.Closed
	require.Len(t, closed, 2, "the latest two are kept")
	for i, c := range closed {
		require.Equal(t, all[2-i].Remote.String(), c.Remote.String())
		require.Equal(t, reap.Kicked, c.Err.Reason)
		require.Greater(t, c.Age, limitOf/4)
	}
	for _, id := range []ConnID{"", "1-2", "1-2-x", "1-2-3-4", "1-2--3", "1-2-4294967296"} {
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrBadConnID, "%q", id)
	}
	for _, id := range []ConnID{"9-9-9", "1-1048576-9"} {
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrNotWatched, "%q", id)
	}
}

func TestInspectOfABlockedLoopEndsWithItsContext(t *testing.T) {
	t.Parallel()
	unblock := make(chan struct{})
	s := newSite(t, Config{ReadTimeout: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); <-unblock; return gnet.None }
	})
	_, err := dial(t, s.addr).Write([]byte("x"))
	require.NoError(t, err)
	eventually(t, "the connection is open", func() bool { return s.reaper.Stats().Connections == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), limitOf)
	defer cancel()
	time.Sleep(limitOf / 4)
	_, err = list(ctx, s.reaper, "age", 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(unblock)
}
