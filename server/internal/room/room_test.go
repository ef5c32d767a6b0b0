package room

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestARoomIsNeverOverfull has connections enter, leave and give up at random times while the limit
// changes. It checks after each step that there are not more than the limit, and that nothing waits
// while there is room.
func TestARoomIsNeverOverfull(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var r Room
			var inside, waiting atomic.Int64
			var leave []chan struct{}
			for range 200 {
				limit := r.Limit()
				switch rnd.IntN(4) {
				case 0, 1:
					ctx, cancel := context.WithCancel(t.Context())
					if rnd.IntN(2) == 0 {
						ctx, cancel = context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(10)))
					}
					gone := make(chan struct{})
					leave = append(leave, gone)
					waiting.Add(1)
					go func() {
						defer cancel()
						entered := r.Enter(ctx)
						waiting.Add(-1)
						if !entered {
							return
						}
						inside.Add(1)
						<-gone
						inside.Add(-1)
						r.Leave()
					}()
					synctest.Wait()
				case 2:
					if len(leave) > 0 {
						i := rnd.IntN(len(leave))
						close(leave[i])
						leave = append(leave[:i], leave[i+1:]...)
					}
				case 3:
					limit = rnd.IntN(5)
					r.SetLimit(limit)
				}
				before := inside.Load()
				time.Sleep(time.Duration(rnd.IntN(3)))
				synctest.Wait()
				r.mu.Lock()
				require.EqualValues(t, inside.Load(), r.taken)
				require.Len(t, r.waiting, int(waiting.Load()))
				r.mu.Unlock()
				if limit == 0 {
					require.Zero(t, waiting.Load())
				} else {
					require.LessOrEqual(t, inside.Load(), max(int64(limit), before))
					require.False(t, waiting.Load() > 0 && inside.Load() < int64(limit), "some wait while there is room")
				}
			}
			for _, gone := range leave {
				close(gone)
			}
			r.SetLimit(0)
			synctest.Wait()
			require.Zero(t, r.Taken())
		})
	}
}
