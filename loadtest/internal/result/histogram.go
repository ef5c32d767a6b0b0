package result

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

// longest is the longest recorded time; longer ones count as longest.
const longest = time.Hour

// A Histogram counts durations from 1 µs to 1 h, with three significant digits. The zero value is
// empty; the first duration takes about 190 KB. Not safe for concurrent use.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewCoarse returns an empty Histogram with two significant digits. It takes about 26 KB.
func NewCoarse() *Histogram { return &Histogram{hdrhistogram.New(1, longest.Microseconds(), 2)} }

// counts returns the counts, which it makes if there are none.
func (h *Histogram) counts() *hdrhistogram.Histogram {
	if h.h == nil {
		h.h = hdrhistogram.New(1, longest.Microseconds(), 3)
	}
	return h.h
}

// Record counts a duration, rounded up to microseconds. A negative one counts as 0.
func (h *Histogram) Record(d time.Duration) {
	d = min(max(d, 0), longest) + time.Microsecond - 1
	_ = h.counts().RecordValue(d.Microseconds()) // it fails only out of range
}

// Add adds the durations of another Histogram, which may be nil.
func (h *Histogram) Add(o *Histogram) {
	if o.Count() > 0 {
		h.counts().Merge(o.h)
	}
}

// Count returns the number of recorded durations. It is 0 for a nil Histogram.
func (h *Histogram) Count() uint64 {
	if h == nil || h.h == nil {
		return 0
	}
	return uint64(h.h.TotalCount())
}

// Quantile returns the duration that the part q of all, such as 0.99, does not exceed. It is 0 if
// the Histogram is empty.
func (h *Histogram) Quantile(q float64) time.Duration { return h.at(rankOf(q, h.Count())) }

// rankOf returns how many of n durations a quantile covers. It is rounded up: the nearest rank,
// which HdrHistogram takes, may be too low.
func rankOf(q float64, n uint64) float64 { return math.Ceil(q*float64(n) - 1e-6) }

// at returns the duration with a rank.
func (h *Histogram) at(rank float64) time.Duration {
	if h.Count() == 0 {
		return 0
	}
	return time.Duration(h.h.ValueAtPercentile(100*rank/float64(h.Count()))) * time.Microsecond
}

// Max returns the longest duration.
func (h *Histogram) Max() time.Duration { return h.Quantile(1) }

// Quantiles are the main figures of a Histogram.
type Quantiles struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

// Quantiles returns the main figures. They are 0 for an empty Histogram.
func (h *Histogram) Quantiles() Quantiles { return (&Latency{Corrected: *h}).Quantiles() }

// A written Histogram has the main quantiles beside the encoded data, for readers without a
// library.
type written struct {
	Quantiles
	// Data is in the compressed V2 format of HdrHistogram, in base64. The unit is a microsecond.
	Data string `json:"hdr_v2_us"`
}

// MarshalJSON implements json.Marshaler.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	data, err := h.counts().Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, err
	}
	return json.Marshal(written{h.Quantiles(), string(data)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var w written
	err := json.Unmarshal(b, &w)
	if err == nil {
		h.h, err = hdrhistogram.Decode([]byte(w.Data))
	}
	if err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	return nil
}

// Add adds the latencies of another part.
func (l *Latency) Add(o *Latency) {
	l.Corrected.Add(&o.Corrected)
	l.Raw.Add(&o.Raw)
	l.Unanswered.Add(&o.Unanswered)
}

// Count returns the number of messages.
func (l *Latency) Count() uint64 { return l.Corrected.Count() + l.Unanswered.Count() }

// Quantile returns the duration in which the part q of all messages was answered. If fewer were,
// it returns a lower bound: how long such messages waited in vain, and at least the longest answer.
func (l *Latency) Quantile(q float64) (d time.Duration, atLeast bool) {
	answered, rank := float64(l.Corrected.Count()), rankOf(q, l.Count())
	if rank <= answered {
		return l.Corrected.at(rank), false
	}
	return max(l.Corrected.Max(), l.Unanswered.at(rank-answered)), true
}

// Quantiles returns the main figures of all messages.
func (l *Latency) Quantiles() Quantiles {
	of := func(q float64) time.Duration {
		d, _ := l.Quantile(q)
		return d
	}
	return Quantiles{l.Count(), of(0.5), of(0.99), of(0.999), of(1)}
}

// Text returns a quantile as text, with a sign if it is a lower bound.
func (l *Latency) Text(q float64) string {
	d, atLeast := l.Quantile(q)
	switch {
	case l.Count() == 0:
		return format.None
	case atLeast:
		return "≥ " + format.Duration(d)
	}
	return format.Duration(d)
}

// Spread returns the median, p99 and maximum in one line.
func (l *Latency) Spread() string {
	if l.Count() == 0 {
		return format.None
	}
	return "p50 " + l.Text(0.5) + " · p99 " + l.Text(0.99) + " · max " + l.Text(1)
}
