package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/version"
)

const (
	// frameEvery is the time between two frames.
	frameEvery = 250 * time.Millisecond
	// tableEvery is the time between two tables of the longest idle.
	tableEvery = time.Second
	// frameShare and tableShare say what part of the time looking may take: one of so many.
	frameShare, tableShare = 20, 50
	// sectors is into how many parts a ring is drawn.
	sectors = 120
	// shownRows is how many rows a table of the page has.
	shownRows = 20
	// maxViewers bounds how many watch at the same time.
	maxViewers = 32
	// blockedEvery is the time between two frames while an event loop does not answer.
	blockedEvery = time.Second
	// slowViewer is how long a viewer may take for one frame.
	slowViewer = 5 * time.Second
	// ringPatience and tablePatience are how long a frame waits for event loops, and longestPause bounds the time to the next one if they
	// are slow.
	ringPatience, tablePatience, longestPause = frameEvery, 2 * time.Second, 5 * time.Second
)

// A hello is the first event of a viewer.
type hello struct {
	Name     string         `json:"name"`
	Version  string         `json:"version"`
	Address  string         `json:"address"`
	Reasons  []idle.Reason  `json:"reasons"`
	Writable bool           `json:"writable"`
	Limits   map[string]any `json:"limits"`
}

// A frame is what all viewers see at one moment. Counters are since the start.
type frame struct {
	Now         int64          `json:"now_ms"`
	Uptime      float64        `json:"uptime_seconds"`
	Status      State          `json:"status"`
	Connections int            `json:"connections"`
	Limit       int            `json:"limit"`
	LimitWhy    string         `json:"limit_why"`
	Opened      uint64         `json:"opened"`
	Closed      uint64         `json:"closed"`
	Reads       uint64         `json:"reads"`
	Rejected    uint64         `json:"rejected"`
	Saved       uint64         `json:"saved_by_kernel"`
	Outages     uint64         `json:"outages"`
	Away        float64        `json:"outage_seconds"` // the length of all outages
	PutOff      uint64         `json:"put_off"`        // verdicts, because of outages
	Holds       uint64         `json:"holds"`
	Holding     bool           `json:"holding"` // verdicts are held: nothing is heard
	Reaped      idle.Counts    `json:"reaped"`
	Lateness    lateness       `json:"lateness"`
	Behind      float64        `json:"behind_seconds"`
	Lag         float64        `json:"driver_lag_seconds"`
	Pressure    Pressure       `json:"pressure"`
	Blocked     bool           `json:"blocked,omitempty"` // an event loop did not answer: there are no rings
	Rings       []ring         `json:"rings,omitempty"`
	Limits      map[string]any `json:"limits,omitempty"`
	Idle        []connection   `json:"idle,omitzero"`
	Recent      []closed       `json:"recent,omitzero"`
}

type lateness struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	Max   float64 `json:"max_seconds"`
}

type ring struct {
	Loop        int         `json:"loop"`
	Connections int         `json:"connections"`
	Turn        float64     `json:"turn_seconds"`
	Now         float64     `json:"now_seconds"`
	Sectors     []int       `json:"sectors"`
	Later       int         `json:"later"`
	Reaped      idle.Counts `json:"reaped"`
}

// An eye remembers what viewers have seen of that which not each frame has.
type eye struct {
	blink     bool   // there are viewers who have not seen it
	updates   uint64 // of the Config
	reaped    uint64
	table     []connection
	nextTable time.Time
}

// lookAtAll makes a frame. What the event loops do not answer in time is missing in it.
func (h *Handler) lookAtAll(ctx context.Context, e *eye) frame {
	rings, blocked := h.lookAtRings(ctx) // first: the loops publish their counters with it
	st, s := h.cfg.Status(), h.reaper.Stats()
	f := frame{
		Now: time.Now().UnixMilli(), Uptime: time.Since(h.began).Seconds(), Status: st.State, Connections: h.reaper.Connections(),
		Limit: st.Limit, LimitWhy: st.LimitWhy, Opened: s.Opened, Closed: s.Closed, Reads: s.Reads, Rejected: st.Rejected, Saved: s.SavedByKernel,
		Outages: s.Outages, Away: s.OutageTime.Seconds(), PutOff: s.PutOff, Holds: s.Holds, Holding: s.Holding,
		Reaped:   s.Reaped,
		Lateness: lateness{s.Lateness.Count, s.Lateness.Mean().Seconds(), s.Lateness.Max.Seconds()},
		Behind:   s.Behind.Seconds(), Lag: s.DriverLag.Seconds(), Pressure: st.Pressure.numbers(),
		Rings: rings, Blocked: blocked,
	}
	if e.blink || s.Updates != e.updates {
		e.updates, f.Limits = s.Updates, limits(h.reaper.Config())
	}
	if n := s.Reaped.Total(); e.blink || n != e.reaped {
		e.reaped = n
		all := h.reaper.Closed()
		f.Recent = newClosed(all[:min(len(all), shownRows)])
	}
	if e.blink {
		f.Idle = e.table
	}
	if !f.Blocked && time.Now().After(e.nextTable) {
		h.lookAtIdle(ctx, e)
		f.Idle = e.table
	}
	e.blink = false
	return f
}

// numbers returns 0 for what is none, as 0/0, which JSON cannot tell.
func (p Pressure) numbers() Pressure {
	for _, x := range []*float64{&p.Connections, &p.Descriptors, &p.Heap} {
		if math.IsNaN(*x) || math.IsInf(*x, 0) {
			*x = 0
		}
	}
	return p
}

func (h *Handler) lookAtRings(ctx context.Context) (rings []ring, blocked bool) {
	ctx, stop := context.WithTimeout(ctx, ringPatience)
	defer stop()
	found, err := h.reaper.Inspect(ctx, idle.Query{Sectors: sectors})
	for _, r := range found.Rings {
		rings = append(rings, ring{
			r.Loop, r.Connections, r.Turn.Seconds(), r.Now.Seconds(), r.Sectors, r.Later, r.Reaped,
		})
	}
	return rings, err != nil
}

// lookAtIdle makes a table anew.
func (h *Handler) lookAtIdle(ctx context.Context, e *eye) {
	ctx, stop := context.WithTimeout(ctx, tablePatience)
	defer stop()
	began := time.Now()
	if found, err := h.reaper.Inspect(ctx, idle.Query{Limit: shownRows}); err == nil {
		e.table = newConnections(found.Connections)
	}
	e.nextTable = began.Add(pause(tableEvery, tableShare, began))
}

// pause returns the time from the beginning of a look to that of the next one, which may take one part of so many of the time.
func pause(least time.Duration, share time.Duration, began time.Time) time.Duration {
	return min(max(least, share*time.Since(began)), longestPause)
}

// reasons returns all reasons, in their order.
func reasons() (all []idle.Reason) {
	for reason := range (idle.Counts{}).All() {
		all = append(all, reason)
	}
	return all
}

// A live shows frames to viewers. It has a goroutine while there are any: the first to come starts it, and the last to go stops it and
// waits for it.
type live struct {
	look func(context.Context, *eye) frame

	mu      sync.Mutex
	viewers map[chan []byte]bool // guarded by mu; true for those that have seen all that not each frame has
	stop    context.CancelFunc   // guarded by mu; nil without viewers
	done    chan struct{}        // guarded by mu
}

// join adds a viewer, and reports whether there is room for one more. A viewer that has not taken the last frame misses the next.
func (l *live) join() (frames chan []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.viewers) == maxViewers {
		return nil, false
	}
	if l.viewers == nil {
		l.viewers = map[chan []byte]bool{}
	}
	frames = make(chan []byte, 1)
	l.viewers[frames] = false
	if l.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		l.stop, l.done = stop, make(chan struct{})
		go l.run(ctx, l.done)
	}
	return frames, true
}

func (l *live) leave(frames chan []byte) {
	l.mu.Lock()
	delete(l.viewers, frames)
	var done chan struct{}
	if len(l.viewers) == 0 {
		l.stop()
		done, l.stop = l.done, nil
	}
	l.mu.Unlock()
	if done != nil {
		<-done
	}
}

// run makes frames until ctx is done. It looks for a twentieth of the time at most, so that a server with a million connections or a
// loop that is blocked is not asked all the time.
func (l *live) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	var e eye
	for {
		began := time.Now()
		e.blink = l.anyNew(ctx)
		f := l.look(ctx, &e)
		text, err := json.Marshal(f)
		if err != nil {
			panic("BUG: admin: " + err.Error())
		}
		l.show(ctx, fmt.Appendf(nil, "event: frame\ndata: %s\n\n", text))
		next := pause(frameEvery, frameShare, began)
		if f.Blocked { // it has waited rather than looked
			next = blockedEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(began.Add(next))):
		}
	}
}

// anyNew reports whether a viewer has come, or has missed a frame, since it was called last. Once ctx is done, viewers are those of the
// next run.
func (l *live) anyNew(ctx context.Context) (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for frames, seen := range l.viewers {
		some = some || !seen
		l.viewers[frames] = true
	}
	return some
}

func (l *live) show(ctx context.Context, event []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for frames := range l.viewers {
		select {
		case frames <- event:
		default:
			l.viewers[frames] = false // it has missed what may not come again
		}
	}
}

func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx, which would hold frames back
	if r.Method == "HEAD" {
		return
	}
	frames, ok := h.live.join()
	if !ok {
		fail(w, http.StatusServiceUnavailable, "%d are watching already: close another page", maxViewers)
		return
	}
	defer h.live.leave(frames)
	first, err := json.Marshal(hello{
		Name: "idlewheel", Version: version.Of(version.Idlewheel), Address: h.cfg.Status().Address, Reasons: reasons(),
		Writable: h.cfg.Token != "", Limits: limits(h.reaper.Config()),
	})
	if err != nil {
		panic("BUG: admin: " + err.Error())
	}
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // that of the request would end it
	for event := fmt.Appendf(nil, "event: hello\ndata: %s\n\n", first); ; {
		_ = out.SetWriteDeadline(time.Now().Add(slowViewer)) // one that cannot be set is none
		if _, err := w.Write(event); err != nil || out.Flush() != nil {
			return
		}
		select {
		case event = <-frames:
		case <-r.Context().Done():
			return
		}
	}
}
