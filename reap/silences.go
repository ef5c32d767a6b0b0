package reap

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/internal/silence"
)

// Silences tells what other timeouts would have done. Times in which the server could not hear its
// peers do not count, nor do silences of held and exempt connections, and of those with an idle
// timeout of their own. An event loop without connections tells nothing.
type Silences struct {
	Window      time.Duration // that is covered: all of the first hour, then 30 to 60 minutes
	Timeout     time.Duration // the read or all idle timeout in force, 0 if there is none
	Least       time.Duration // shorter silences are not counted
	Connections uint64        // that were open in the Window
	Dead        uint64        // of them, those that the Reaper closed for their silence
	DeadFor     float64       // the sum of the silences of the dead, in seconds

	// Living counts a connection by the longest of its silences that a byte of the peer ended.
	// Ended counts one that the peer or an error closed, by its last silence; not in idlenet.
	// Both have 32 numbers for each doubling of the silence, from a millisecond on.
	Living, Ended []uint32

	// Sampled says that messages are not seen, as in package idlenet. A silence counts then as it
	// was at a look at the connection, once a timeout, so that Try returns a lower bound.
	Sampled bool
}

// Try returns how many living connections a timeout would have cut, and how much sooner it would
// have found the dead, on average: less than 0 if later. A silence counts as longer if it is longer
// than the timeout or up to 2.2 % shorter. It is not known if the Window is shorter than two
// timeouts, without connections, and for timeouts below Least.
func (s *Silences) Try(timeout time.Duration) (cut uint64, sooner time.Duration, known bool) {
	if s.Connections == 0 || timeout < s.Least || timeout > s.Window/2 {
		return 0, 0, false
	}
	for _, n := range s.Living[silence.Bucket(timeout):] {
		cut += uint64(n)
	}
	if s.Dead > 0 {
		sooner = time.Duration(s.DeadFor/float64(s.Dead)*float64(time.Second)) - timeout
	}
	return cut, sooner, true
}

// Text says what a timeout would have done.
func (s *Silences) Text(timeout time.Duration) string {
	cut, sooner, known := s.Try(timeout)
	if !known {
		return fmt.Sprintf("Not enough is known yet about a timeout of %v.", timeout)
	}
	least := ""
	if s.Sampled {
		least = "at least "
	}
	text := fmt.Sprintf("In the last %v a timeout of %v would have cut %s%d of %d living connections",
		s.Window.Round(time.Second), timeout, least, cut, s.Connections)
	if s.Dead > 0 {
		way := "sooner"
		if sooner = sooner.Round(100 * time.Millisecond); sooner < 0 {
			way = "later"
		}
		text += fmt.Sprintf(", and would have found the %d dead ones %v %s on average", s.Dead, sooner.Abs(), way)
	}
	return text + "."
}
