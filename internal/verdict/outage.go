package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// An Outage is a time in which the server could not hear or answer its peers: its process was
// stopped, its machine was paused, its network was down, or its event loop was blocked.
type Outage struct {
	From, To mono.Time
	// Length is To - From for one outage, and the sum of the lengths where several were merged.
	Length time.Duration
}

// after returns the part of the outage that lies after an instant.
func (o Outage) after(since mono.Time) time.Duration {
	return max(min(o.Length, o.To.Sub(since)), 0)
}

// Outages is a short list of outages in the order of time. They do not overlap.
type Outages []Outage

// maxOutages bounds an Outages list. In a full list the two neighbours that span the least time
// become one entry, so the recent past stays exact and nothing is forgotten too early.
const maxOutages = 16

// covers reports whether an instant lies in the outage.
func (o Outage) covers(at mono.Time) bool { return o.From <= at && at < o.To }

// Within returns the time of the outages that lies between two instants.
func (all Outages) Within(from, to mono.Time) (sum time.Duration) {
	for _, o := range all {
		if part := min(o.To, to).Sub(max(o.From, from)); part > 0 {
			sum += min(part, o.Length)
		}
	}
	return sum
}

// Add returns a copy of the list with one more outage. Overlapping times count once. If one of them
// was merged, their overlap is unknown, and the length is the largest possible one. Outages that
// ended before the given instant are dropped.
func (all Outages) Add(added Outage, forget mono.Time) Outages {
	list := make(Outages, 0, len(all)+1)
	for _, o := range all {
		switch {
		case o.To <= forget:
		case o.To < added.From || o.From > added.To:
			list = append(list, o)
		default: // they overlap or touch
			union := Outage{From: min(o.From, added.From), To: max(o.To, added.To)}
			union.Length = min(o.Length+added.Length, union.To.Sub(union.From))
			added = union
		}
	}
	at, _ := slices.BinarySearchFunc(list, added, func(a, b Outage) int { return cmp.Compare(a.From, b.From) })
	list = slices.Insert(list, at, added)
	if len(list) > maxOutages {
		list = list.merge()
	}
	return list
}

// merge joins the two neighbours that span the least time.
func (all Outages) merge() Outages {
	least := 0
	for i := 1; i < len(all)-1; i++ {
		if all[i+1].To-all[i].From < all[least+1].To-all[least].From {
			least = i
		}
	}
	a, b := all[least], all[least+1]
	all[least] = Outage{a.From, b.To, a.Length + b.Length}
	return slices.Delete(all, least+1, least+2)
}

// Away has the times in which the server could not hear or answer its peers. Immutable once in use.
// The zero Away has none.
type Away struct {
	// Server are the times in which the process or the machine was paused. They count for each
	// limit that a peer can keep only while the server hears and answers it.
	Server Outages
	// Silent are the times in which nothing was heard from any connection, so that the network was
	// probably down. Their Length leaves out the times of Server. They count for the same limits,
	// but only if they began before the deadline that Server gives: they are inferred, and must not
	// add up without end.
	Silent Outages
	// HeldSince is the beginning of a silence of all connections that lasts, 0 if there is none.
	// Verdicts about peers are held meanwhile.
	HeldSince mono.Time
	// Loop are the outages of Server and the times in which the event loop of the connection was
	// blocked. They count for limits that need the loop. Idle timeouts do not: the kernel receives
	// while a loop is blocked, and its answer suffices.
	Loop Outages
}

// putOff returns a deadline after the outages of Server and Silent, and whether a lasting silence
// holds it. The peer was heard last after the given instant.
func (a *Away) putOff(d deadline, heard mono.Time, grace time.Duration) (due mono.Time, held bool) {
	all := postponed{limit: d.due}
	certain := all // by Server alone
	server, silent := a.Server, a.Silent
	if grace < 0 {
		silent = nil
	}
	var counted mono.Time // the end of what has counted; a merged outage may have ended later
	for len(server) > 0 || len(silent) > 0 {
		if len(silent) == 0 || len(server) > 0 && server[0].From < silent[0].From {
			o, more := server[0], min(server[0].Length, grace)
			if o.From <= certain.due() {
				certain.pass(o, d.since, heard, more)
			}
			o.Length = min(o.Length, max(o.To.Sub(counted), 0))
			if o.From <= all.due() && o.Length > 0 {
				all.pass(o, d.since, heard, more)
				counted = max(counted, o.From.Add(o.Length))
			}
			server = server[1:]
			continue
		}
		if o := silent[0]; o.From <= certain.due() {
			span := o.To.Sub(o.From)
			o.From = max(o.From, counted)
			o.Length = max(min(o.Length+a.Server.Within(o.From, o.To), o.To.Sub(o.From)), 0)
			all.pass(o, d.since, heard, min(span, grace))
			counted = o.To
		}
		silent = silent[1:]
	}
	return all.due(), grace >= 0 && a.HeldSince != 0 && a.HeldSince <= certain.due()
}

// A postponed deadline is the later of two: the deadline of the limit, and the end of the grace.
type postponed struct{ limit, grace mono.Time }

func (p *postponed) due() mono.Time { return max(p.limit, p.grace) }

// pass postpones the deadline of a limit that counts from since, after an outage that began before
// the deadline.
//   - The outage does not count: the deadline of the limit moves by the part of the outage after
//     since, and the grace of an earlier outage moves by the length of this one.
//   - A peer that was not heard since the outage gets a grace, about as long as the outage, because
//     it retransmits at intervals that double with each attempt (RFC 6298, 5.5). A negative value
//     switches this off.
func (p *postponed) pass(o Outage, since, heard mono.Time, more time.Duration) {
	if o.From <= p.grace {
		p.grace = p.grace.Add(o.Length)
	}
	p.limit = p.limit.Add(o.after(since))
	if heard < o.To && more >= 0 {
		p.grace = max(p.grace, o.To.Add(more))
	}
}

// putOffLoop returns a deadline after the outages of an event loop and of the server. Times in
// which only the loop was blocked add at most the limit once more, so that a loop that is always
// busy keeps no dead connection. If only the loop was blocked when the deadline passed, the
// connection gets as much time after the block as it lasted, at most the limit.
func (a *Away) putOffLoop(d deadline, heard mono.Time, grace time.Duration) mono.Time {
	due, again := d.due, deadline{}
	for _, o := range a.Loop {
		if o.From <= due {
			due = due.Add(o.after(d.since))
		}
		if o.covers(d.due) && !slices.ContainsFunc(a.Server, func(s Outage) bool { return s.covers(d.due) }) {
			again = deadline{o.To, d.limit, o.To.Add(min(o.Length, d.limit))}
		}
	}
	blocked := due.Sub(d.due) - a.Server.Within(d.since, due)
	d.due = d.due.Add(min(max(blocked, 0), d.limit))
	due, _ = a.putOff(d, heard, grace)
	if again != (deadline{}) {
		later, _ := a.putOff(again, heard, grace)
		due = max(due, later)
	}
	return due
}
