package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
)

// newTestRoom returns a room with a Reaper that has a limit of its own.
func newTestRoom(t testing.TB, limit, ofReaper int) *room {
	t.Helper()
	return newRoom(limit, newTestReaper(t, &gnet.BuiltinEventEngine{}, ofReaper))
}

func newTestReaper(t testing.TB, h gnet.EventHandler, limit int) *idle.Reaper {
	t.Helper()
	r, err := idle.Middleware(h, idle.Config{ReadTimeout: time.Minute, MaxConnections: limit})
	require.NoError(t, err)
	return r
}

// setMaxConnections is an Update of the user.
func setMaxConnections(r *idle.Reaper, n int) {
	changeMaxConnections(r, func(int) int { return n })
}

func TestAShortageKeepsTheLimitOfTheUser(t *testing.T) {
	for _, limit := range []int{0, 100} {
		r := newTestRoom(t, 100, limit)
		now := func() int { return r.reaper.Config().MaxConnections }
		begin, end := func() { r.shrink() }, func() { require.True(t, r.grow(200)) }
		end()
		require.Equal(t, limit, now(), "there was no shortage")
		require.Zero(t, r.reaper.Stats().Updates)
		begin()
		begin()
		require.Equal(t, 1, now())
		require.False(t, r.grow(1+growth))
		require.Equal(t, 1, now(), "each change costs a pass over all connections")
		require.False(t, r.grow(2+growth))
		require.Equal(t, 2+growth, now())
		end()
		require.Equal(t, limit, now())

		begin()
		setMaxConnections(r.reaper, 7)
		end()
		require.Equal(t, 7, now())
		begin()
		require.False(t, r.grow(50))
		require.Equal(t, 7, now(), "it is lower anyway")
		end()
		require.Equal(t, 7, now())
		begin()
		setMaxConnections(r.reaper, 100)
		r.widen(100)
		require.Equal(t, 1, now(), "an Update of the server does not end the shortage")
		setMaxConnections(r.reaper, 100)
		require.False(t, r.grow(1))
		require.Equal(t, 1, now(), "nor does one of its Reaper")
		end()
		require.Equal(t, 100, now())
	}
}

func TestAnUpdateAtTheEndOfAShortageStays(t *testing.T) {
	r := newTestRoom(t, 100, 100)
	for range 1000 {
		setMaxConnections(r.reaper, 100)
		r.shrink()
		var both sync.WaitGroup
		both.Go(func() { r.grow(50); r.grow(200) })
		both.Go(func() { setMaxConnections(r.reaper, 7); r.widen(7) })
		both.Wait()
		require.Equal(t, 7, r.reaper.Config().MaxConnections)
	}
}

func TestARoomWithoutLimitHasNoShortage(t *testing.T) {
	r := newTestRoom(t, 0, 0)
	left, begins := r.shrink()
	require.Zero(t, left)
	require.False(t, begins)
	r.widen(5)
	require.True(t, r.places.TryAcquire(1<<40))
}

// TestARoomIsNeverOverfull has connections enter, leave and give up at random times while shortages
// begin and end. It checks after each step that there are not more than the room has places for,
// and that nothing waits while there is room.
func TestARoomIsNeverOverfull(t *testing.T) {
	const limit = 40
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r := newTestRoom(t, limit, limit)
			var inside, waiting atomic.Int64
			var leave []chan struct{}
			enter := func() {
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(2) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(10)))
				}
				gone := make(chan struct{})
				leave = append(leave, gone)
				waiting.Add(1)
				go func() {
					defer cancel()
					a := &acceptors{room: r, pauses: &pauses{}, log: slog.New(slog.DiscardHandler), accepting: ctx}
					entered := a.enter()
					waiting.Add(-1)
					if entered {
						inside.Add(1)
						<-gone
						inside.Add(-1)
						r.leave()
					}
				}()
				synctest.Wait()
			}
			for range 300 {
				left, before := limit-r.kept, inside.Load()
				switch rnd.IntN(8) {
				default:
					enter()
				case 4, 5:
					if len(leave) > 0 {
						i := rnd.IntN(len(leave))
						close(leave[i])
						leave = append(leave[:i], leave[i+1:]...)
					}
				case 6:
					var begins bool
					now := left
					left, begins = r.shrink()
					require.Equal(t, now == limit && left < limit, begins)
					require.EqualValues(t, max(before, 1), left, "the connections that have entered stay")
				case 7:
					n := rnd.IntN(2 * limit)
					require.Equal(t, n >= limit || left == limit, r.grow(n))
					require.GreaterOrEqual(t, limit-r.kept, left)
					left = limit - r.kept
				}
				time.Sleep(time.Duration(rnd.IntN(3)))
				synctest.Wait()
				require.EqualValues(t, inside.Load(), r.taken.Load())
				require.LessOrEqual(t, inside.Load(), int64(left))
				require.Equal(t, left, r.reaper.Config().MaxConnections)
				require.False(t, waiting.Load() > 0 && inside.Load() < int64(left), "some wait while there is room")
			}
			for _, gone := range leave {
				close(gone)
			}
			require.True(t, r.grow(limit))
			synctest.Wait()
			require.True(t, r.places.TryAcquire(limit), "all places are free")
		})
	}
}

// TestAnUpdateMakesRoom raises the limit of connections while a client waits, without a shortage
// and in one, and lowers it again.
func TestAnUpdateMakesRoom(t *testing.T) {
	r := newTestRoom(t, 2, 2)
	enter := func() bool { return r.places.TryAcquire(1) }
	require.True(t, enter())
	require.True(t, enter())
	waits := make(chan error)
	go func() { waits <- r.places.Acquire(t.Context(), 1) }()
	setMaxConnections(r.reaper, 4)
	r.widen(4)
	require.NoError(t, <-waits)
	require.True(t, enter())
	require.False(t, enter())
	require.Equal(t, 4, r.size())

	r.leave()
	r.shrink()
	setMaxConnections(r.reaper, 8)
	r.shrink() // between the two steps of an Update
	r.widen(8)
	require.False(t, enter(), "the new places are kept back")
	require.True(t, r.grow(100))
	require.Equal(t, 8, r.reaper.Config().MaxConnections)
	for range 5 {
		require.True(t, enter())
	}
	require.False(t, enter())
	setMaxConnections(r.reaper, 4)
	r.widen(4)
	require.Equal(t, 8, r.size(), "the Reaper refuses those above its limit")
}
