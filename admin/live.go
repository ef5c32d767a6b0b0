package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/internal/version"
	"github.com/idlewheel/idlewheel/reap"
)

const (
	// frameInterval is the shortest time between two frames.
	frameInterval = 250 * time.Millisecond
	// frameShare bounds the cost of the frames: they take at most 1/20 of the time.
	frameShare = 20
	// blockedInterval is the time between two frames while an event loop does not answer.
	blockedInterval = time.Second
	// maxInterval bounds the time between two frames, and between two tables, if the event loops
	// are slow.
	maxInterval = 5 * time.Second
	// maxViewers is the largest number of viewers at the same time.
	maxViewers = 32
	// viewerTimeout bounds the time that a viewer takes to receive a frame.
	viewerTimeout = 5 * time.Second
	// viewerBuffer is the size of the send buffer of a viewer, in bytes.
	viewerBuffer = 16 << 10
	// fillerInterval is the shortest time between two fillers.
	fillerInterval = 2 * viewerTimeout
)

// filler is a comment that viewers skip. It is larger than the usual buffers of a connection, 256
// KB, so a viewer that does not read does not receive all of it.
var filler = []byte(strings.Repeat(":"+strings.Repeat(" ", 1022)+"\n", 256))

// interval returns the time from the start of one inspection to the start of the next. It is at
// least least. If all inspections take as long as the last one, they use 1/share of the time.
func interval(least, share, took time.Duration) time.Duration {
	return min(max(least, share*took), maxInterval)
}

// A hello is the first event of a viewer.
type hello struct {
	Name     string         `json:"name"`
	Version  string         `json:"version"`
	Address  string         `json:"address"`
	Reasons  []reap.Reason  `json:"reasons"`
	Writable bool           `json:"writable"`
	Limits   map[string]any `json:"limits"`
	Minute   []sample       `json:"minute"`
	Shortest any            `json:"pressure_timeout,omitempty"` // to which pressure shortens timeouts
}

// reasons returns all reasons, in their order.
func reasons(s reap.Stats) []reap.Reason { return slices.Sorted(maps.Keys(s.Reaped)) }

// A subscription is the place of a viewer, a client that gets frames.
type subscription struct {
	frames  chan []byte // closed if another viewer has taken the place
	trusted bool        // it has the token; immutable
}

// A live sends frames to viewers. It has a goroutine while there are viewers. The first viewer
// starts the goroutine. The last one stops it and waits for its end.
type live struct {
	makeFrame func(context.Context, *frameState) frame

	mu      sync.Mutex
	viewers map[subscription]bool // guarded by mu; true if the viewer has missed nothing
	stop    context.CancelFunc    // guarded by mu; nil without viewers
	done    chan struct{}         // guarded by mu; closed at the end of the goroutine
	fill    bool                  // guarded by mu; the next frame has a filler
	filled  time.Time             // guarded by mu; of the last filler
}

// subscribe adds a viewer, unless there are too many. One place is for a viewer with the token. If
// it is taken, a viewer with the token takes the place of one without. If a viewer is refused, all
// others are sent a filler: those that do not read make room. A viewer that has not taken a frame
// yet misses the next one.
func (l *live) subscribe(trusted bool) (v subscription, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := maxViewers - 1; len(l.viewers) >= most && !trusted || len(l.viewers) > most && !l.replaceLocked() {
		l.fill = time.Since(l.filled) >= fillerInterval
		return v, false
	}
	if l.viewers == nil {
		l.viewers = map[subscription]bool{}
	}
	v = subscription{make(chan []byte, 1), trusted}
	l.viewers[v] = false
	if l.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		l.stop, l.done = stop, make(chan struct{})
		go l.run(ctx, l.done)
	}
	return v, true
}

// replaceLocked ends a viewer without the token. It returns false if there is none.
func (l *live) replaceLocked() bool {
	for v := range l.viewers {
		if !v.trusted {
			delete(l.viewers, v)
			close(v.frames)
			return true
		}
	}
	return false
}

// unsubscribe removes a viewer.
func (l *live) unsubscribe(v subscription) {
	l.mu.Lock()
	_, there := l.viewers[v]
	delete(l.viewers, v)
	var done chan struct{}
	if there && len(l.viewers) == 0 {
		l.stop()
		done, l.stop = l.done, nil
	}
	l.mu.Unlock()
	if done != nil {
		<-done
	}
}

// run sends frames until ctx is done. It sends fewer of them if the server has many connections
// or if an event loop is blocked.
func (l *live) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	var state frameState
	for {
		began := time.Now()
		state.full = l.needFull(ctx)
		f := l.makeFrame(ctx, &state)
		text, err := json.Marshal(f)
		if err != nil {
			panic("BUG: admin: " + err.Error())
		}
		l.broadcast(ctx, fmt.Appendf(nil, "event: frame\ndata: %s\n\n", text))
		next := interval(frameInterval, frameShare, time.Since(began))
		if f.Blocked { // the time was spent waiting, not on the loops
			next = blockedInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(began.Add(next))):
		}
	}
}

// needFull reports whether a viewer was added, or has missed a frame, since the previous call. Once
// ctx is done, the viewers belong to the next run.
func (l *live) needFull(ctx context.Context) (full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for v, complete := range l.viewers {
		full = full || !complete
		l.viewers[v] = true
	}
	return full
}

// broadcast sends an event to all viewers that are ready for it.
func (l *live) broadcast(ctx context.Context, event []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if l.fill {
		event = append(event, filler...)
		l.fill, l.filled = false, time.Now()
	}
	for v := range l.viewers {
		select {
		case v.frames <- event:
		default:
			l.viewers[v] = false // the missed frame may have had data that is not repeated
		}
	}
}

func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would delay frames
	if r.Method == "HEAD" {
		return
	}
	trusted := h.cfg.Token == "" || h.hasToken(r)
	v, ok := h.live.subscribe(trusted)
	if !ok {
		fail(w, http.StatusServiceUnavailable, "the page has %d viewers already: close one of them, or send the token if there is one. "+
			"Those that do not read are closed within %v", maxViewers, fillerInterval+viewerTimeout)
		return
	}
	defer h.live.unsubscribe(v)
	w.Header().Set("Connection", "close") // nothing follows the stream
	setSendBuffer(r, viewerBuffer)
	st := h.cfg.Status()
	first, err := json.Marshal(hello{
		Name: "idlewheel", Version: version.Of(version.Idlewheel), Address: st.Address, Reasons: reasons(h.reaper.Stats()),
		Writable: h.cfg.Token != "", Limits: h.reaper.Limits(),
		Minute: h.history.all(), Shortest: st.Settings["pressure-timeout"],
	})
	if err != nil {
		panic("BUG: admin: " + err.Error())
	}
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the deadline of the request would end the stream
	isLast := false
	for event := fmt.Appendf(nil, "event: hello\ndata: %s\n\n", first); ; {
		_ = out.SetWriteDeadline(time.Now().Add(viewerTimeout)) // not every ResponseWriter has deadlines
		if _, err := w.Write(event); err != nil || out.Flush() != nil || isLast {
			return
		}
		select {
		case event = <-v.frames:
			if isLast = event == nil; isLast {
				event = fmt.Appendf(nil, "event: end\ndata: {\"error\":\"a viewer with the token has taken the place: the page has %d viewers\"}\n\n", maxViewers)
			}
		case <-isDown(r):
			return
		case <-r.Context().Done():
			return
		}
	}
}
