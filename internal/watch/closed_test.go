package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

func TestTheNumberOfKeptEntriesChanges(t *testing.T) {
	var c ClosedRing
	began := time.Now()
	add := func(i, keep int) {
		c.Add(reap.Closed{At: began.Add(time.Duration(i)), Err: &reap.Error{Bytes: i}}, keep)
	}
	add(1, 2)
	add(2, 2)
	add(3, 2)
	add(4, 4)
	add(5, 4)
	add(6, 4)
	add(7, 4)
	var got []int
	for _, o := range c.Newest(4) {
		got = append(got, o.Err.Bytes)
	}
	require.Equal(t, []int{7, 6, 5, 4}, got)
}
