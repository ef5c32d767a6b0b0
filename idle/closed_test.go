package idle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/coarse"
)

func TestKeepClosedChanges(t *testing.T) {
	var c closedRing
	l := &loop{clock: new(coarse.Clock), set: &settings{}}
	l.clock.Init(time.Millisecond, time.Second, coarse.Real())
	keep := func(k int) { l.set = &settings{cfg: Config{KeepClosed: k}} }
	s := &state{}
	s.conn = &scriptedConn{}
	add := func(i int) { c.add(l, 0, s, &ReapError{Bytes: i}) }
	keep(2)
	add(1)
	add(2)
	add(3)
	keep(4)
	add(4)
	add(5)
	add(6)
	add(7)
	var got []int
	for _, o := range newest(c.read(), 4) {
		got = append(got, o.Err.Bytes)
	}
	require.Equal(t, []int{7, 6, 5, 4}, got)
}
