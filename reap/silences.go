package reap

import (
	"fmt"
	"time"
)

// Silences tells what other timeouts would have done. Times in which the server could not hear its
// peers do not count, nor do silences of held and exempt connections.
type Silences struct {
	Window      time.Duration // that is covered: all of the first hour, then 30 to 60 minutes
	Timeout     time.Duration // the read or all idle timeout in force, 0 if there is none
	Least       time.Duration // shorter silences are not counted
	Connections uint64        // that were open in the Window
	Bounds      []time.Duration

	// Sampled says that messages are not seen, as in package idlenet. A silence counts then as it
	// was at a look at the connection, once a timeout, so that Trial.Cut is a lower bound.
	Sampled bool

	// Each list has a number for the silences from each of Bounds to the next. Living counts a
	// connection once, by the longest of its silences that a byte of the peer ended. Ended are the
	// silences that a close by the peer or an error ended. Dead are those of reaped connections.
	Living, Ended, Dead []uint64
}

// A Trial is what a timeout would have done. It is not known if the Window is shorter than two
// timeouts, without connections, and for timeouts below Least.
type Trial struct {
	Timeout time.Duration
	Known   bool
	Cut     float64       // connections that lived on
	Ended   float64       // connections that the peer or an error ended, later than the timeout
	Dead    uint64        // connections that the Reaper closed for their silence
	Sooner  time.Duration // by which these would have been found, on average; negative if later
}

// Try returns what a timeout would have done. Within a bucket, silences count as evenly spread. A
// reaped connection counts as dead, so that no timeout above the present one cuts more.
func (s *Silences) Try(timeout time.Duration) Trial {
	t := Trial{Timeout: timeout, Known: s.Connections > 0 && timeout >= s.Least && timeout <= s.Window/2}
	t.Cut, t.Ended = s.above(s.Living, timeout), s.above(s.Ended, timeout)
	sum := 0.0
	for i, n := range s.Dead {
		t.Dead += n
		sum += float64(n) * float64((s.Bounds[i]+s.Bounds[min(i+1, len(s.Bounds)-1)])/2-timeout)
	}
	if t.Dead > 0 {
		t.Sooner = time.Duration(sum / float64(t.Dead))
	}
	return t
}

// above returns the number of silences longer than a timeout.
func (s *Silences) above(counts []uint64, timeout time.Duration) (sum float64) {
	for i, n := range counts {
		from, to := s.Bounds[i], s.Bounds[min(i+1, len(s.Bounds)-1)]
		switch {
		case from >= timeout:
			sum += float64(n)
		case to > timeout:
			sum += float64(n) * float64(to-timeout) / float64(to-from)
		}
	}
	return sum
}

// Text says what a timeout would have done.
func (s *Silences) Text(timeout time.Duration) string {
	t := s.Try(timeout)
	if !t.Known {
		return fmt.Sprintf("Not enough is known yet about a timeout of %v.", timeout)
	}
	least := ""
	if s.Sampled {
		least = "at least "
	}
	text := fmt.Sprintf("In the last %v a timeout of %v would have cut %s%.0f of %d living connections",
		s.Window.Round(time.Second), timeout, least, t.Cut, s.Connections-min(t.Dead, s.Connections))
	if d := t.Sooner.Round(100 * time.Millisecond); t.Dead > 0 {
		way := "sooner"
		if d < 0 {
			way = "later"
		}
		text += fmt.Sprintf(", and would have found the %d dead ones %v %s on average", t.Dead, d.Abs(), way)
	}
	return text + "."
}
