package server

import (
	"context"
	"math/rand/v2"
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
			var r room
			inside, waiting := 0, 0
			var leave []chan struct{}
			for range 200 {
				limit := r.limit
				switch rnd.IntN(4) {
				case 0, 1:
					ctx, cancel := context.WithCancel(t.Context())
					if rnd.IntN(2) == 0 {
						ctx, cancel = context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(10)))
					}
					gone := make(chan struct{})
					leave = append(leave, gone)
					waiting++
					go func() {
						defer cancel()
						entered := r.enter(ctx)
						waiting--
						if !entered {
							return
						}
						inside++
						<-gone
						inside--
						r.leave()
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
					r.resize(limit)
				}
				before := inside
				time.Sleep(time.Duration(rnd.IntN(3)))
				synctest.Wait()
				require.Equal(t, inside, r.taken)
				require.Len(t, r.waiting, waiting)
				if limit == 0 {
					require.Zero(t, waiting)
				} else {
					require.LessOrEqual(t, inside, max(limit, before))
					require.False(t, waiting > 0 && inside < limit, "%d wait, %d of %d are inside", waiting, inside, limit)
				}
			}
			for _, gone := range leave {
				close(gone)
			}
			r.resize(0)
			synctest.Wait()
			require.Zero(t, r.taken)
		})
	}
}
