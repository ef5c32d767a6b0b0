package idle

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/counts"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// TestThePartsOfStatsAddUp adds parts that differ in each number, and checks each number of the
// sum.
func TestThePartsOfStatsAddUp(t *testing.T) {
	part := func(factor int64) *counters {
		var s counters
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
	var got counters
	for _, factor := range []int64{10, 100, 1} { // the largest is in the middle
		got.Add(part(factor))
	}
	n := int64(0)
	eachNumber("", reflect.ValueOf(&got).Elem(), func(name string, v reflect.Value) {
		n++
		want := n * 111
		switch name {
		case ".Stats.Behind", ".Lateness.max":
			want = n * 100 // the worst of all parts
		case ".Stats.DriverLag", ".Stats.Updates", ".Stats.Outages", ".Stats.OutageTime", ".Stats.Holds", ".Stats.PendingOutput":
			want = 0 // counted by the Reaper, not by its loops
		case ".Stats.ClosedByHandler", ".Stats.Lateness.Count", ".Stats.Lateness.Sum", ".Stats.Lateness.Max":
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
		for field, f := range v.Fields() {
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

func TestStatsAndRingsCoverAllLoops(t *testing.T) {
	r := middleware(t, &sink{}, readOnly)
	var conns []*scriptedConn
	for loop := range 3 {
		el := newScriptedLoop()
		for range loop + 1 {
			c := newScriptedConn(el, len(conns))
			conns = append(conns, c)
			r.OnOpen(c)
		}
	}
	got := r.Stats()
	require.Equal(t, 6, got.Connections)
	require.Equal(t, 6, got.Entries)
	require.EqualValues(t, 6, got.Opened)
	for _, c := range conns { // rings would wait for loops with connections, which do not run here
		r.OnClose(c, nil)
	}
	got = r.Stats()
	require.Zero(t, got.Entries)
	require.EqualValues(t, 6, got.Closed)
	rings, err := r.rings(t.Context(), 4)
	require.NoError(t, err)
	require.Len(t, rings, 3)
	for i, ring := range rings {
		require.Equal(t, i+1, ring.Loop, "the rings are in the order of the loops")
	}
}

// TestATurnOfARingDoesNotOverlapTheNext stops the time, so that some deadlines are exactly one turn
// away.
func TestATurnOfARingDoesNotOverlapTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(middleware(t, &sink{}, Config{ReadTimeout: 10 * time.Second, Tick: 100 * time.Millisecond}), &fakeEventLoop{}, 1)
		turn := l.ring(10).Turn
		for id, due := range []time.Duration{turn - l.clock.Tick(), turn, turn + l.clock.Tick()} {
			l.wheel.Schedule(due, uint32(id))
		}
		ring := l.ring(10)
		require.Zero(t, ring.Now)
		require.Equal(t, turn, ring.Turn)
		want := make([]int, len(ring.Sectors))
		want[len(want)-1] = 1
		require.Equal(t, want, ring.Sectors, "a deadline after a turn is not in the current sector")
		require.Equal(t, 2, ring.Later)
	})
}

func TestATurnOfARingHasRoomForJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{ReadTimeout: 10 * time.Second, Jitter: 0.5, Tick: 100 * time.Millisecond}
		l := newLoop(middleware(t, &sink{}, cfg), &fakeEventLoop{}, 1)
		l.wheel.Schedule(15*time.Second, 1)
		ring := l.ring(30)
		require.GreaterOrEqual(t, ring.Turn, 15*time.Second)
		require.Less(t, ring.Turn, 17*time.Second)
		require.Zero(t, ring.Later, "a turn has room for the timeout of 10 s and a jitter of one half")
	})
}

// TestADriverWithoutConnectionsHasNoLag opens connections long after the Reaper was made, and long
// after the last close.
func TestADriverWithoutConnectionsHasNoLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := middleware(t, &sink{}, Config{ReadTimeout: time.Hour, Tick: 100 * time.Millisecond})
		c := newScriptedConn(newScriptedLoop(), 1)
		for range 2 {
			time.Sleep(time.Hour + 30*time.Millisecond)
			r.OnOpen(c)
			require.Zero(t, r.Stats().DriverLag, "the driver has just started")
			time.Sleep(time.Second)
			require.Zero(t, r.Stats().DriverLag, "the ticks were in time")
			r.OnClose(c, nil)
			require.Zero(t, r.Stats().DriverLag)
		}
	})
}

// TestAStoppedDriverForgetsItsLag lets two windows pass without activity.
func TestAStoppedDriverForgetsItsLag(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct{ at, want time.Duration }{
		{lagWindow, 50 * ms},
		{lagWindow + 100*ms, 50 * ms}, // the next window begins
		{2*lagWindow + 100*ms - 1, 50 * ms},
		{2*lagWindow + 100*ms, 0},
		{time.Hour, 0},
	} {
		var l lag
		l.expect(mono.Time(100 * ms))
		l.ran(mono.Time(100*ms), 100*ms) // begins the first window
		l.ran(mono.Time(250*ms), 50*ms)
		require.Equal(t, tc.want, l.worst(mono.Time(tc.at), false), "at %v", tc.at)
	}
}

func TestOnlyAHeartbeatTimeoutCountsTheLastPingAsMissed(t *testing.T) {
	w := newWatched(t, Config{ReadTimeout: time.Hour, Heartbeat: Heartbeat{Interval: time.Hour, Ping: pinging().Ping}, ObserveOnly: true})
	s := w.state()
	for k := firstReason; k <= lastDue; k++ {
		for unanswered := range 2 {
			f, before := w.facts(), w.l.counters.Missed
			f.Missed = unanswered
			w.l.carryOut(s, w.l.limitsOf(s), verdict.Verdict{Act: verdict.End, Reason: verdict.Reason(k)}, &f, w.l.clock.Elapsed())
			want := 0
			if k == HeartbeatTimeout {
				want = unanswered
			}
			require.EqualValues(t, want, w.l.counters.Missed-before, "%v, %d pings without an answer", k, unanswered)
		}
	}
	require.EqualValues(t, 2*int(lastDue), w.l.counters.Observed.Export().Total())
}

func TestAChangeOfTheConfigurationIsLogged(t *testing.T) {
	var out syncbuf.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	r := middleware(t, &sink{}, Config{ReadTimeout: time.Minute, Logger: log})
	require.Empty(t, out.String())
	require.Error(t, r.Update(to(Config{ReadTimeout: -1, Logger: log})))
	flushLog(r)
	require.Empty(t, out.String(), "an error changes nothing")
	require.NoError(t, r.Update(to(Config{ReadTimeout: 2 * time.Hour, Logger: log})))
	flushLog(r)
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), `level=INFO msg="configuration changed"`)
	require.Contains(t, out.String(), " idle.read-timeout=2h0m0s ")
}

func TestCountsAsJSON(t *testing.T) {
	var c counts.Reasons
	c[ReadIdle], c[Shed] = 3, 1
	text, err := json.Marshal(c.Export())
	require.NoError(t, err)
	require.Contains(t, string(text), `"read idle":3`)
	var got Counts
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, c.Export(), got)
	require.Len(t, got, int(lastReason), "the JSON has all reasons")
	require.ErrorContains(t, json.Unmarshal([]byte(`{"bored": 1}`), &got), `idle: "bored" is not the name of a reason`)
}
