package verdict

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// A life is a connection of a small model: a peer that sends at an interval, TCP, and sequences of
// outages in which all packets are lost. The model is exact: the server knows each outage.
type life struct {
	timeout  time.Duration
	interval time.Duration // between two messages of the peer
	phase    time.Duration
	until    mono.Time // the peer vanishes then
	outages  Outages
}

const (
	firstResend = 200 * time.Millisecond
	lastResend  = 2 * time.Minute
	modelStep   = 20 * time.Millisecond
)

// randomLife returns a life with one to six outages, 0.1 to 2 timeouts long and 0.1 to 1.5 apart.
func randomLife(rng *rand.Rand) (l life) {
	l.timeout = time.Duration(1+rng.IntN(10)) * time.Second
	part := func(least, most float64) time.Duration { return Share(l.timeout, least+rng.Float64()*(most-least)) }
	l.interval, l.phase = part(0.3, 0.95), part(0, 1)
	at := mono.Time(0).Add(part(3, 4))
	for range 1 + rng.IntN(6) {
		to := at.Add(part(0.1, 2))
		l.outages = append(l.outages, Outage{From: at, To: to, Length: to.Sub(at)})
		at = to.Add(part(0.1, 1.5))
	}
	l.until = Never
	return l
}

// end returns the end of the last outage.
func (l *life) end() mono.Time { return l.outages[len(l.outages)-1].To }

// arrivals returns when the bytes of the peer reach the kernel. A lost segment is sent again after
// intervals that double; later messages wait for it.
func (l *life) arrivals(to mono.Time) (all []mono.Time) {
	down := func(at mono.Time) bool { return covers(l.outages, at) }
	for at := mono.Time(l.phase); at < min(to, l.until); at = at.Add(l.interval) {
		arrival := at
		if n := len(all); n > 0 && at < all[n-1] { // it follows the one that is sent again
			arrival = all[n-1]
		}
		for wait := firstResend; down(arrival); wait = min(2*wait, lastResend) {
			arrival = arrival.Add(wait)
		}
		all = append(all, arrival)
	}
	return all
}

// ends returns when the server closes the connection, or Never, if it judges in each step until
// the given instant. The server knows an outage as soon as it has begun.
func (l *life) ends(lim *Limits, to mono.Time) mono.Time {
	arrivals, next, heard := l.arrivals(to), 0, mono.Time(0)
	var known Outages
	for now := mono.Time(0); now < to; now = now.Add(modelStep) {
		if len(l.outages) > len(known) && l.outages[len(known)].To <= now {
			known = l.outages[:len(known)+1]
		}
		if len(l.outages) > len(known) && l.outages[len(known)].From <= now {
			continue
		}
		for next < len(arrivals) && arrivals[next] <= now {
			heard = arrivals[next]
			next++
		}
		f := Facts{Opened: At(0), Heard: At(heard), ArrivedAfter: max(heard, 1), Wrote: At(0)}
		if v := lim.Judge(&f, paused(known), now); v.Act != Wait {
			return now
		}
	}
	return Never
}

// TestSequencesOfOutages has living peers and peers that vanish before the first outage.
func TestSequencesOfOutages(t *testing.T) {
	const lives = 1000
	seed := uint64(1)
	rng := rand.New(rand.NewPCG(seed, 0))
	cut, kept := 0, []float64(nil)
	for range lives {
		l := randomLife(rng)
		lim := &Limits{Read: l.timeout, Grace: lastResend, Hold: time.Hour, Horizon: time.Hour, Resend: 250 * time.Millisecond}
		lim.Ready()
		if at := l.ends(lim, l.end().Add(20*l.timeout)); at != Never {
			cut++
		}
		l.until = l.outages[0].From.Add(-l.interval)
		heard := mono.Time(0)
		for _, at := range l.arrivals(Never) {
			heard = at
		}
		at := l.ends(lim, l.end().Add(100*l.timeout))
		if at == Never {
			t.Fatalf("a dead connection is kept: %+v", l)
		}
		ran := at.Sub(heard) - l.outages.Within(heard, at)
		kept = append(kept, float64(ran)/float64(l.timeout))
	}
	report(t, cut, lives, kept)
}

func report(t *testing.T, cut, lives int, kept []float64) {
	slices.Sort(kept)
	t.Logf("cut %d of %d; dead kept: p50 %.2f p90 %.2f p99 %.2f max %.2f timeouts", cut, lives,
		kept[len(kept)/2], kept[len(kept)*9/10], kept[len(kept)*99/100], kept[len(kept)-1])
}
