package result

import (
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

// add adds the latencies of another part.
func (l *Latency) add(o *Latency) {
	l.Corrected, l.Raw, l.Unanswered = Sum(l.Corrected, o.Corrected), Sum(l.Raw, o.Raw), Sum(l.Unanswered, o.Unanswered)
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
	if atLeast {
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

// AllLatency returns the latency of all messages of a group.
func (g *Group) AllLatency() *Latency {
	var all Latency
	for _, l := range g.Latency {
		all.add(l)
	}
	return &all
}
