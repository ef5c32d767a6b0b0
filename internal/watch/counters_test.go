package watch

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

func TestLatenessIsCountedInBuckets(t *testing.T) {
	var l Lateness
	for _, late := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, 200 * time.Millisecond, 10 * time.Second, time.Hour} {
		l.Observe(late)
	}
	got := l.Export()
	bounds := got.Bounds
	require.Len(t, got.Buckets, len(bounds)+1)
	want := map[time.Duration]uint64{time.Millisecond: 2, 5 * time.Millisecond: 1, 200 * time.Millisecond: 1, 10 * time.Second: 1}
	for i, bound := range bounds {
		require.Equal(t, want[bound], got.Buckets[i], "%v", bound)
	}
	require.EqualValues(t, 1, got.Buckets[len(bounds)], "above the last bound")
	require.EqualValues(t, 6, got.Count)
	require.Equal(t, time.Hour, got.Max)
	require.Equal(t, time.Hour+10*time.Second+202*time.Millisecond+1, got.Sum)
}

// TestThePartsOfStatsAddUp adds parts that differ in each number, and checks each number of the
// sum.
func TestThePartsOfStatsAddUp(t *testing.T) {
	part := func(factor int64) *Counters {
		var s Counters
		n := int64(0)
		eachNumber("", reflect.ValueOf(&s).Elem(), func(_ string, v reflect.Value) {
			if n++; v.CanInt() {
				v.SetInt(n * factor)
			} else {
				v.SetUint(uint64(n * factor))
			}
		})
		return &s
	}
	var got Counters
	for _, factor := range []int64{10, 100, 1} { // the largest is in the middle
		got.Add(part(factor))
	}
	n := int64(0)
	eachNumber("", reflect.ValueOf(&got).Elem(), func(name string, v reflect.Value) {
		n++
		want := n * 111
		switch name {
		case ".Stats.LoopDelay", ".Lateness.max":
			want = n * 100 // the worst of all parts
		case ".Stats.ClockDelay", ".Stats.Updates", ".Stats.Outages", ".Stats.OutageTime", ".Stats.Suspensions", ".Stats.GroupSuspensions", ".Stats.PendingOutput":
			want = 0 // counted by the Watcher and the front end
		case ".Stats.Lateness.Count", ".Stats.Lateness.Sum", ".Stats.Lateness.Max":
			want = 0 // export sets them
		}
		require.EqualValues(t, want, v.Interface(), name)
	})
	require.Greater(t, n, int64(50))
}

// eachNumber calls a function with each number in a value, and its name.
func eachNumber(name string, v reflect.Value, show func(name string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field, f := v.Type().Field(i), v.Field(i)
			if !field.IsExported() { // of counters
				f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
			}
			eachNumber(name+"."+field.Name, f, show)
		}
	case reflect.Array:
		for i := range v.Len() {
			eachNumber(name, v.Index(i), show)
		}
	case reflect.Bool, reflect.Map, reflect.Slice:
	default:
		show(name, v)
	}
}

func TestCountsAsJSON(t *testing.T) {
	var c Reasons
	c[reap.ReadIdle], c[reap.Shed] = 3, 1
	text, err := json.Marshal(c.Export())
	require.NoError(t, err)
	require.Contains(t, string(text), `"read idle":3`)
	var got reap.Counts
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, c.Export(), got)
	require.Len(t, got, int(verdict.Last), "the JSON has all reasons")
	require.ErrorContains(t, json.Unmarshal([]byte(`{"bored": 1}`), &got), `idle: "bored" is not the name of a reason`)
}
