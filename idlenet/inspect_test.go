package idlenet

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

func TestKick(t *testing.T) {
	t.Parallel()
	reaped := make(chan *ReapError, 2)
	e := newEcho(t, Config{ReadTimeout: time.Minute, KeepClosed: 1, OnReap: func(_ net.Conn, r *ReapError) { reaped <- r }})
	ctx := context.Background()
	client, c := e.open()
	e.conn(c).Hold()
	for _, bad := range []ConnID{"", "1", "1-2", "1-2-3-4", "a-b-c", "1-2-99999999999"} {
		require.ErrorIs(t, e.Kick(ctx, bad), ErrBadConnID, "%q", bad)
	}
	for _, unknown := range []ConnID{"0-0-1", "1-7000-1", "999-0-1"} {
		require.ErrorIs(t, e.Kick(ctx, unknown), ErrNotWatched, "%q", unknown)
	}
	id := e.conn(c).ID()
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, e.Kick(over, id), context.Canceled)
	require.NoError(t, e.Kick(ctx, id))
	require.ErrorIs(t, e.Kick(ctx, id), ErrNotWatched, "it has ended")
	require.ErrorIs(t, e.Reason(c), reap.Kicked)
	require.Equal(t, e.Reason(c), <-reaped)
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	eventually(t, "it is found closed", func() bool { return e.Connections() == 0 || e.Stats().Closed == 1 })
	require.ErrorIs(t, e.Kick(ctx, id), ErrNotWatched)
	i, err := e.Inspect(ctx, reap.Query{Closed: true})
	require.NoError(t, err)
	require.Len(t, i.Closed, 1)
	require.Equal(t, id, i.Closed[0].ID)
	require.Equal(t, client.LocalAddr().String(), i.Closed[0].Remote.String())
	require.ErrorIs(t, i.Closed[0].Err, reap.Kicked)
}

func TestInspect(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Minute, KeepClosed: 2})
	ctx := context.Background()
	_, err := e.Inspect(ctx, reap.Query{By: "size", Limit: -1})
	require.ErrorContains(t, err, "Query.By")
	require.ErrorContains(t, err, "Query.Limit")

	var all []*served
	for range 5 {
		say(t, e.dial(), "hello")
		all = append(all, e.accepted())
		e.conn(all[len(all)-1]).Ready()
	}
	e.conn(all[0]).Hold()
	_, fresh := e.open()
	i, err := e.Inspect(ctx, reap.Query{Limit: 3, By: "age", States: true, Sectors: 8})
	require.NoError(t, err)
	require.Len(t, i.Connections, 3)
	require.Equal(t, map[string]int{
		"exempt": 0, "observed": 0, "leaving": 0, "stalled": 0, "held": 1, "handshake": 1, "open": 4,
	}, i.States)
	entries := 0
	for _, ring := range i.Rings {
		entries += ring.Connections
	}
	require.Equal(t, 6, entries)
	i, err = e.Inspect(ctx, reap.Query{Limit: 10})
	require.NoError(t, err)
	require.Len(t, i.Connections, 6)
	require.Nil(t, i.States, "not asked for")
	for _, c := range i.Connections {
		if c.ID != e.conn(fresh).ID() && runtime.GOOS == "linux" {
			require.EqualValues(t, 5, c.Received)
		}
		require.Less(t, c.ReadIdle, 10*time.Second)
		require.LessOrEqual(t, c.Due, time.Minute+time.Second)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	i, err = e.Inspect(canceled, reap.Query{States: true})
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, i.States, "open", "zeros after an error")

	for _, c := range all { // KeepClosed is 2
		require.NoError(t, e.Kick(ctx, e.conn(c).ID()))
	}
	i, err = e.Inspect(ctx, reap.Query{Closed: true, States: true})
	require.NoError(t, err)
	require.Len(t, i.Closed, 2)
	eventually(t, "closed connections are not listed", func() bool {
		i, err := e.Inspect(ctx, reap.Query{Limit: 10})
		return err == nil && len(i.Connections) == 1 && i.Connections[0].ID == e.conn(fresh).ID()
	})
	for _, keep := range []int{1, 2} {
		require.NoError(t, e.Update(func(cfg *Config) { cfg.KeepClosed = keep }))
		i, err = e.Inspect(ctx, reap.Query{Closed: true})
		require.NoError(t, err)
		require.Len(t, i.Closed, 1, "the other one is forgotten")
	}
}

// TestCallsComeOneAfterTheOther kicks and sheds from many goroutines while connections time out.
func TestCallsComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	var inCall, calls atomic.Int32
	call := func() {
		require.EqualValues(t, 1, inCall.Add(1))
		time.Sleep(time.Millisecond)
		inCall.Add(-1)
		calls.Add(1)
	}
	e := newEcho(t, Config{
		ReadTimeout: 200 * time.Millisecond, MaxConnections: 20, ShedProtect: 10 * time.Millisecond,
		OnIdle: func(net.Conn, Event) Action { call(); return Close },
		OnReap: func(net.Conn, *ReapError) { call() },
	})
	var group sync.WaitGroup
	for range 60 {
		e.dial()
		time.Sleep(2 * time.Millisecond)
	}
	e.mu.Lock()
	all := e.conns
	e.mu.Unlock()
	for _, c := range all {
		group.Go(func() { _ = e.Kick(context.Background(), e.conn(c).ID()) })
	}
	group.Wait()
	eventually(t, "all have ended", func() bool { return e.Stats().Reaped.Total() == uint64(len(all)) })
	require.Positive(t, calls.Load())
}
