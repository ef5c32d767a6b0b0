package admin

import (
	"sync"
	"time"
	"weak"
)

// historyLength is the number of samples in a history: one per second, and both ends.
const historyLength = 61

// A sample has the seconds since the start, the open connections, the reads and the reaped
// connections.
type sample [4]float64

// A history keeps the samples of the last minute. Its charts are complete when a page is opened.
type history struct {
	mu      sync.Mutex
	samples []sample // guarded by mu; at most historyLength, oldest first
}

func (m *history) add(s sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.samples) == historyLength {
		m.samples = m.samples[:copy(m.samples, m.samples[1:])]
	}
	m.samples = append(m.samples, s)
}

// all returns a copy of the samples.
func (m *history) all() []sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]sample{}, m.samples...)
}

// keepHistory takes a sample once a second until the Handler is garbage: a Handler has no end.
func keepHistory(of weak.Pointer[Handler]) {
	if h := of.Value(); h != nil {
		s := h.reaper.Stats()
		h.history.add(sample{time.Since(h.began).Seconds(), float64(h.inspector.open()), float64(s.Reads), float64(s.Reaped.Total())})
		time.AfterFunc(time.Second, func() { keepHistory(of) })
	}
}
