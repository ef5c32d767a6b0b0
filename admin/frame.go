package admin

import (
	"context"
	"maps"
	"math"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

const (
	// tableInterval is the shortest time between two tables of the longest idle connections.
	tableInterval = time.Second
	// tableShare bounds the cost of the tables: they take at most 1/50 of the time.
	tableShare = 50
	// tableSize is the number of records in a table of the page.
	tableSize = 20
	// sectors is the number of sectors in which a wheel is drawn.
	sectors = 120
	// ringTimeout and tableTimeout bound the time that a frame waits for the event loops.
	ringTimeout, tableTimeout = frameInterval, 2 * time.Second
)

// A frame is the state of the server at one moment, as all viewers see it. Counters are totals
// since the start.
type frame struct {
	Time         int64          `json:"now_ms"` // Unix time
	Uptime       float64        `json:"uptime_seconds"`
	Status       State          `json:"status"`
	Connections  int            `json:"connections"`
	Limit        int            `json:"limit"`
	LimitWhy     string         `json:"limit_why"`
	Opened       uint64         `json:"opened"`
	Closed       uint64         `json:"closed"`
	Reads        *uint64        `json:"reads,omitempty"` // nil with package idlenet, which sees none
	Rejected     uint64         `json:"rejected"`
	Saved        uint64         `json:"spared_unread"`
	Outages      uint64         `json:"outages"`
	OutageTime   float64        `json:"outage_seconds"` // length of all outages
	Postponed    uint64         `json:"postponed"`      // verdicts, because of outages
	Suspensions  uint64         `json:"suspensions"`
	Suspended    bool           `json:"suspended"` // verdicts about all are
	SuspendedFor []suspension   `json:"suspended_for"`
	Reaped       reap.Counts    `json:"reaped"`
	Lateness     lateness       `json:"lateness"`
	LoopDelay    float64        `json:"loop_delay_seconds"`
	Lag          float64        `json:"clock_delay_seconds"`
	Pressure     ratios         `json:"pressure,omitempty"`
	Blocked      bool           `json:"blocked,omitempty"` // then there are no rings
	Rings        []ring         `json:"rings,omitempty"`
	Limits       map[string]any `json:"limits,omitempty"`
	Idle         []connection   `json:"idle,omitzero"`
	Recent       []closed       `json:"recent,omitzero"`
	Silences     map[string]any `json:"silences,omitempty"`
}

// A suspension is a silence of a group of connections, or of all, for which verdicts are suspended.
type suspension struct {
	Group  string  `json:"group"`
	Silent float64 `json:"silent_seconds"`
}

func showSuspensions(all []reap.Suspension) []suspension {
	list := []suspension{} // not null
	for _, h := range all {
		list = append(list, suspension{h.Group.String(), h.For.Seconds()})
	}
	return list
}

type lateness struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	Max   float64 `json:"max_seconds"`
}

// frameState records what was already sent and is not repeated in every frame.
type frameState struct {
	full     bool           // the next frame repeats everything: a viewer is new or has missed a frame
	updates  uint64         // of the Config, when the limits were sent
	reaped   uint64         // connections, when the closed list was sent
	table    []connection   // the longest idle
	silences map[string]any // with the table
	tableDue time.Time      // the time of the next table
}

// makeFrame returns the next frame. It leaves out what the event loops do not answer in time.
func (h *Handler) makeFrame(ctx context.Context, state *frameState) frame {
	rings, blocked := h.inspectRings(ctx) // before Stats: the loops publish their counters with it
	st, s := h.cfg.Status(), h.reaper.Stats()
	f := frame{
		Time: time.Now().UnixMilli(), Uptime: time.Since(h.began).Seconds(),
		Status: st.State, Connections: h.inspector.open(), Limit: st.Limit, LimitWhy: st.LimitWhy,
		Opened: s.Opened, Closed: s.Closed, Rejected: st.Rejected, Saved: s.SparedUnread,
		Outages: s.Outages, OutageTime: s.OutageTime.Seconds(), Postponed: s.Postponed, Suspensions: s.Suspensions, Suspended: s.Suspended,
		SuspendedFor: showSuspensions(s.SuspendedFor), Reaped: withoutZeros(s.Reaped),
		Lateness:  lateness{s.Lateness.Count, s.Lateness.Sum.Seconds() / float64(max(s.Lateness.Count, 1)), s.Lateness.Max.Seconds()},
		LoopDelay: s.LoopDelay.Seconds(), Lag: s.ClockDelay.Seconds(), Pressure: st.known(),
		Rings: rings, Blocked: blocked,
	}
	if h.seesReads {
		f.Reads = &s.Reads
	}
	if state.full || s.Updates != state.updates {
		state.updates, f.Limits = s.Updates, h.reaper.Limits()
	}
	if n := s.Reaped.Total(); state.full || n != state.reaped {
		list := h.inspector.closed()
		state.reaped, f.Recent = n, list[:min(len(list), tableSize)]
	}
	due := !f.Blocked && time.Now().After(state.tableDue)
	if due {
		h.updateTable(ctx, state)
	}
	if due || state.full {
		f.Idle, f.Silences = state.table, state.silences
	}
	state.full = false
	return f
}

// ratios are the used parts of resources by their names.
type ratios map[string]float64

// known returns the parts of the Pressure that are known. A part of a resource without a limit is
// not, and JSON has no number for 0/0.
func (st Status) known() ratios {
	p := st.Pressure
	all := ratios{"connections": p.Connections, "descriptors": p.Descriptors, "heap": p.Heap, "memory": p.Memory}
	maps.DeleteFunc(all, func(name string, x float64) bool {
		return math.IsNaN(x) || math.IsInf(x, 0) || x == 0 && (name != "connections" || st.Limit == 0)
	})
	return all
}

// inspectRings returns the rings of all event loops. If one does not answer in time, blocked is
// true.
func (h *Handler) inspectRings(ctx context.Context) (rings []ring, blocked bool) {
	ctx, cancel := context.WithTimeout(ctx, ringTimeout)
	defer cancel()
	rings, err := h.inspector.rings(ctx, sectors)
	return rings, err != nil
}

// updateTable replaces the table of the longest idle connections, and the silences. If an event
// loop does not answer in time, they stay as they are.
func (h *Handler) updateTable(ctx context.Context, state *frameState) {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	began := time.Now()
	if table, err := h.inspector.connections(ctx, "idle", tableSize); err == nil {
		state.table = table
	}
	if all, err := h.inspector.silences(ctx); err == nil {
		state.silences = all
	}
	state.tableDue = began.Add(interval(tableInterval, tableShare, time.Since(began)))
}
