package admin

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
)

func TestAViewerGetsAHelloAndThenFrames(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, hour, Config{Token: rightToken, Status: func() Status {
		return Status{State: Paused, Address: "a:1", Limit: 7, LimitWhy: "why", Rejected: 3, Pressure: Pressure{0.1, 0.2, 0.3, 0.4}}
	}})
	for range 30 {
		s.connect(t, "x")
	}
	v := s.watch(t)
	h := v.hello()
	require.Equal(t, "idlewheel", h["name"])
	require.Equal(t, "a:1", h["address"])
	require.Equal(t, true, h["writable"])
	require.Len(t, h["reasons"], int(reap.Shed))
	require.Equal(t, "read idle", h["reasons"].([]any)[0])
	limits := decode[map[string]any](t, s.do(t, "GET", "/api/config", ""))["limits"]
	require.Equal(t, limits, h["limits"])
	require.NotEmpty(t, h["version"])

	f := v.frame()
	require.Equal(t, limits, f.Limits, "the first frame is complete")
	require.NotNil(t, f.Idle)
	require.NotNil(t, f.Recent)
	f = v.until("the loops answer", func(f shownFrame) bool { return !f.Blocked })
	require.Equal(t, "paused", f.Status)
	require.Equal(t, 30, f.Connections)
	require.Equal(t, uint64(30), f.Opened)
	require.Equal(t, 7, *f.Limit)
	require.Equal(t, "why", *f.LimitWhy)
	require.Equal(t, uint64(3), f.Rejected)
	require.Equal(t, 0.2, *f.Pressure.Descriptors)
	require.NotNil(t, f.Lateness.Mean)
	require.NotNil(t, f.LoopDelay)
	require.NotNil(t, f.Lag)
	require.NotNil(t, f.Saved)
	require.WithinDuration(t, time.Now(), time.UnixMilli(f.Time), soon)
	requireRings(t, f, 2, 30)

	again := s.watch(t)
	again.hello()
	again.until("the next viewer gets a complete frame, too", func(f shownFrame) bool {
		return f.Limits != nil && f.Idle != nil && f.Recent != nil
	})
}

// requireRings checks that every connection is in a sector or later.
func requireRings(t *testing.T, f shownFrame, loops, connections int) {
	t.Helper()
	require.False(t, f.Blocked)
	require.Len(t, f.Rings, loops)
	sum := 0
	for i, r := range f.Rings {
		n := r.Later
		for _, in := range r.Sectors {
			n += in
		}
		require.Equal(t, r.Connections, n, "ring %d", i)
		require.LessOrEqual(t, len(r.Sectors), sectors)
		require.Equal(t, i+1, r.Loop)
		require.Greater(t, r.Turn, 0.0)
		sum += n
	}
	require.Equal(t, connections, sum)
}

func TestFramesShowWhatHappens(t *testing.T) {
	t.Parallel()
	of := idle.Config{ReadTimeout: time.Minute, FirstByteTimeout: time.Hour, Tick: 10 * time.Millisecond, KeepClosed: 9}
	s := newSite(t, 1, of, Config{Token: rightToken})
	longest := s.connect(t, "x")
	eventually(t, "the message is read", func() bool {
		all, err := s.handler.inspector.connections(t.Context(), "age", 1)
		return err == nil && len(all) == 1 && all[0].Received == 1
	})
	time.Sleep(50 * time.Millisecond) // some ticks, so that one is idle longer
	other := s.connect(t, "x")
	v := s.watch(t)
	v.hello()
	first := v.until("both are in the table", func(f shownFrame) bool { return len(f.Idle) == 2 })
	require.Equal(t, longest.LocalAddr().String(), first.Idle[0].Remote)
	require.GreaterOrEqual(t, first.Idle[0].ReadIdle, first.Idle[1].ReadIdle)
	quiet := v.until("a frame has only what changes", func(f shownFrame) bool { return f.Idle == nil && f.Recent == nil && f.Limits == nil })
	require.Zero(t, quiet.Closed)

	require.Equal(t, 204, s.do(t, "POST", "/api/connections/"+first.Idle[1].ID+"/kick", "").status)
	f := v.until("the kicked connection is listed", func(f shownFrame) bool { return f.Recent != nil })
	require.Len(t, f.Recent, 1)
	require.Equal(t, other.LocalAddr().String(), f.Recent[0].Remote)
	require.Equal(t, uint64(1), f.Closed)
	require.Equal(t, map[string]uint64{"kicked": 1}, f.Reaped)
	f = v.until("the loop is not too busy to be inspected", func(f shownFrame) bool { return len(f.Rings) > 0 })
	require.Equal(t, map[string]uint64{"kicked": 1}, f.Rings[0].Reaped)
	require.GreaterOrEqual(t, f.Time, quiet.Time)
	require.Greater(t, f.Uptime, quiet.Uptime)

	require.Equal(t, 200, s.do(t, "POST", "/api/timeouts", `{"first-byte-timeout":"100ms"}`).status)
	f = v.until("the limits are sent again", func(f shownFrame) bool { return f.Limits != nil })
	require.Equal(t, "100ms", f.Limits["first-byte-timeout"])
	silent := s.connect(t, "")
	f = v.until("the silent connection is listed", func(f shownFrame) bool { return f.Recent != nil })
	require.Equal(t, silent.LocalAddr().String(), f.Recent[0].Remote, "newest first")
	require.Equal(t, "no first byte", f.Recent[0].Reason)
	require.Equal(t, uint64(1), f.Lateness.Count)
	require.Equal(t, uint64(3), f.Opened)
}

func TestNothingRunsWithoutViewers(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Token: rightToken})
	running := func() bool {
		_, running := s.handler.watched()
		return running
	}
	for range 3 {
		require.False(t, running())
		a, b := s.watch(t), s.watch(t)
		a.hello()
		b.hello()
		require.True(t, running())
		a.close()
		b.frame()
		require.True(t, running())
		done := s.handler.live.done
		b.close()
		eventually(t, "the goroutine stops", func() bool { return !running() })
		<-done
	}
}

func TestFramesAreSentWhileALoopIsBlocked(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Token: rightToken})
	v := s.watch(t)
	s.connect(t, "x")
	unblock := sync.OnceFunc(func() { close(s.block) })
	defer unblock() // a failure must not leave the loop blocked
	s.connect(t, "b")
	v.hello()
	f := v.until("a frame reports the blocked loop", func(f shownFrame) bool { return f.Blocked && f.Connections == 2 })
	require.Nil(t, f.Rings)
	again := func() { // replaces the viewer, because its next frame is late
		v.close()
		eventually(t, "the viewer is removed", func() bool { return s.viewers() == 0 })
		v = s.watch(t)
		v.hello()
	}
	again()
	require.True(t, v.frame().Blocked, "a new viewer is told as well")
	unblock()
	again()
	f = v.until("the loop answers", func(f shownFrame) bool { return !f.Blocked })
	requireRings(t, f, 1, 2)
}

// TestViewersConnectAndDisconnect has twenty viewers that do so at random times.
func TestViewersConnectAndDisconnect(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, hour, Config{Token: rightToken})
	s.connect(t, "x")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	end := time.Now().Add(2 * time.Second)
	var all sync.WaitGroup
	for i := range 20 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for time.Now().Before(end) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(400))*time.Millisecond)
				resp, err := http.DefaultTransport.RoundTrip(s.request(t, "GET", "/api/events", nil).WithContext(ctx))
				if err == nil {
					v := newViewer(t, resp.Body)
					for n := 0; ; n++ {
						event, _, ok := v.read()
						if !ok {
							break
						}
						if (event == "hello") != (n == 0) {
							t.Errorf("event %d is %q", n, event)
						}
					}
					resp.Body.Close()
				}
				cancel()
			}
		})
	}
	all.Wait()
	eventually(t, "all viewers are removed", func() bool {
		viewers, running := s.handler.watched()
		return viewers == 0 && !running
	})
}

// TestAViewerThatDoesNotReadIsDropped has one viewer that reads nothing, and one that gets all
// frames.
func TestAViewerThatDoesNotReadIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{Token: rightToken})
		l := servePipes(t, &http.Server{Handler: h})
		stalled := l.dial(t, getEvents)
		defer stalled.Close()
		synctest.Wait() // until it is a viewer
		v := openPipe(t, l)
		v.hello()
		began, last := time.Now(), time.Time{}
		for time.Since(began) < 2*viewerTimeout {
			v.frame()
			if !last.IsZero() {
				require.LessOrEqual(t, time.Since(last), frameInterval, "the other viewer is not delayed")
			}
			last = time.Now()
			viewers, _ := h.watched()
			if d := time.Since(began); d < viewerTimeout-frameInterval {
				require.Equal(t, 2, viewers, "after %v", d)
			} else if d > viewerTimeout+frameInterval {
				require.Equal(t, 1, viewers, "after %v", d)
			}
		}
		_, err := io.ReadAll(stalled)
		require.NoError(t, err)
		v.close()
		synctest.Wait()
		require.Empty(t, h.live.viewers)
	})
}

// TestAViewerThatMissesAFrameGetsACompleteOne changes the limits while a viewer does not read.
func TestAViewerThatMissesAFrameGetsACompleteOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{Token: rightToken})
		l := servePipes(t, &http.Server{Handler: h})
		v := openPipe(t, l)
		v.hello()
		v.until("the viewer has the limits", func(f shownFrame) bool { return f.Limits != nil })
		time.Sleep(time.Second)
		require.Equal(t, 200, call(h, "POST", "/api/timeouts", `{"read-timeout":"7s"}`).status)
		time.Sleep(time.Second)
		v.until("the viewer has the new limits", func(f shownFrame) bool { return f.Limits != nil && f.Limits["read-timeout"] == "7s" })
	})
}

func TestAViewerOutlivesTheTimeoutsOfItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &http.Server{Handler: newHandler(t, Config{Token: rightToken})}
		srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout = time.Second, time.Second, time.Second
		l := servePipes(t, srv)
		v := openPipe(t, l)
		v.hello()
		began, frames := time.Now(), 0
		for ; time.Since(began) < time.Minute; frames++ {
			v.frame()
		}
		require.InDelta(t, 240, frames, 2)
	})
}

// TestFramesTakeATwentiethOfTheTime makes frames that cost time.
func TestFramesTakeATwentiethOfTheTime(t *testing.T) {
	for _, c := range []struct{ cost, every time.Duration }{
		{0, 250 * time.Millisecond}, {12 * time.Millisecond, 250 * time.Millisecond}, {100 * time.Millisecond, 2 * time.Second},
		{ringTimeout, 5 * time.Second}, {time.Second, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var starts []time.Time
			l := live{makeFrame: func(context.Context, *frameState) frame {
				starts = append(starts, time.Now())
				time.Sleep(c.cost)
				return frame{}
			}}
			frames, ok := l.subscribe(true)
			require.True(t, ok)
			time.Sleep(3*c.every + c.every/2)
			l.unsubscribe(frames)
			require.Len(t, starts, 4)
			for i := range starts[1:] {
				require.Equal(t, c.every, starts[i+1].Sub(starts[i]))
			}
		})
	}
}

// A page that is reloaded unsubscribes and subscribes. The end of the first run cancels its
// inspection, so that the frame reports blocked loops.
func TestACanceledFrameIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live{makeFrame: func(ctx context.Context, _ *frameState) frame {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			<-ctx.Done()
			canceled := ctx.Err() == context.Canceled
			time.Sleep(time.Millisecond)
			return frame{Blocked: canceled}
		}}
		old, _ := l.subscribe(true)
		time.Sleep(5 * time.Millisecond)
		var unsubscribed sync.WaitGroup
		unsubscribed.Go(func() { l.unsubscribe(old) })
		synctest.Wait()
		frames, _ := l.subscribe(true)
		first := string(<-frames.frames)
		unsubscribed.Wait()
		l.unsubscribe(frames)
		require.NotContains(t, first, `"blocked":true`)
	})
}

func TestAWriterThatCannotFlushEndsTheEvents(t *testing.T) {
	h := newHandler(t, Config{Open: true})
	w, r := httptest.NewRecorder(), newRequest(t.Context(), "GET", "/api/events", "")
	h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	require.Empty(t, h.live.viewers)
	require.True(t, strings.HasPrefix(w.Body.String(), "event: hello\ndata: {"))
}

// TestHeldVerdictsAreShown silences all busy connections at once, and then lets one of them send
// again.
func TestHeldVerdictsAreShown(t *testing.T) { fair.TryParallel(t, testHeldVerdicts) }

func testHeldVerdicts(t testing.TB) {
	s := newSite(t, 2, idle.Config{ReadTimeout: 20 * time.Second, Tick: 50 * time.Millisecond}, Config{Token: rightToken})
	var conns []net.Conn
	for range 40 {
		conns = append(conns, s.connect(t, "x"))
	}
	stop := testpeer.KeepSending(t, conns)
	v := s.watch(t)
	v.hello()
	f := v.frame()
	require.False(t, *f.Suspended)
	require.Zero(t, *f.Suspensions)
	holding := func() bool {
		return *decode[shownConns](t, s.do(t, "GET", "/api/connections", "")).Suspended
	}
	require.False(t, holding())

	// A connection counts as busy if it was open for longer than the silence.
	time.Sleep(time.Second)
	stop()
	previous := f
	for ; *f.Suspensions == 0; f = v.frame() {
		require.Equal(t, 40, f.Connections)
		previous = f
	}
	require.True(t, *f.Suspended)
	require.True(t, slices.ContainsFunc(f.SuspendedFor, func(h suspension) bool { return h.Silent > 0 && h.Group == "all" }))
	require.True(t, holding())

	_, err := conns[0].Write([]byte("x"))
	require.NoError(t, err)
	for *f.Suspended {
		f = v.frame()
	}
	require.Greater(t, *f.Outages, *previous.Outages)
	require.Greater(t, *f.OutageTime, *previous.OutageTime)
	require.NotNil(t, f.Postponed)
	require.False(t, holding())
}

// Config.Status is code of the program, and may divide by zero. JSON has no NaN.
func TestAPressureThatIsNaNDoesNotPanic(t *testing.T) {
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{State: Ready, Pressure: Pressure{Heap: math.NaN()}} }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotPanics(t, func() { h.live.run(ctx, make(chan struct{})) })
}

func TestAViewerGetsTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{Token: rightToken, Status: func() Status {
			return Status{State: Ready, Settings: map[string]any{"pressure-timeout": "15s"}}
		}})
		l := servePipes(t, &http.Server{Handler: h})
		time.Sleep(time.Hour + time.Millisecond)
		v := openPipe(t, l)
		hello := v.hello()
		samples := hello["minute"].([]any)
		require.Len(t, samples, historyLength)
		require.Equal(t, []any{3540.0, 0.0, 0.0, 0.0}, samples[0])
		require.Equal(t, "15s", hello["pressure_timeout"])
	})
}
