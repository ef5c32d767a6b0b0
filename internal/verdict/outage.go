package verdict

import (
	"cmp"
	"slices"
	"time"
)

// An Outage is a time in which the server could not hear or answer its peers: its process was
// stopped, its machine was paused, its network was down, or its event loop was blocked.
type Outage struct {
	From, To time.Duration
	// Length is To - From for one outage, and the sum of the lengths where several were merged.
	Length time.Duration
}

// after returns the part of the outage that lies after an instant.
func (o Outage) after(since time.Duration) time.Duration {
	return max(min(o.Length, o.To-since), 0)
}

// Outages is a short list of outages in the order of time. They do not overlap.
type Outages []Outage

// maxOutages bounds an Outages list. When it is full, the two neighbours that span the least time
// become one entry. So the recent past stays exact, and nothing is forgotten before it expires.
const maxOutages = 16

// covers reports whether an instant lies in the outage.
func (o Outage) covers(at time.Duration) bool { return o.From <= at && at < o.To }

// Within returns how much of the outages lies in a time.
func (all Outages) Within(from, to time.Duration) (sum time.Duration) {
	for _, o := range all {
		if part := min(o.To, to) - max(o.From, from); part > 0 {
			sum += min(part, o.Length)
		}
	}
	return sum
}

// Add returns the list with one more outage. Times that overlap count once; where one of them was
// merged it is not known what overlaps, and the length is the greatest that is possible. Outages
// that ended before the given instant are dropped. The receiver stays as it is.
func (all Outages) Add(added Outage, forget time.Duration) Outages {
	list := make(Outages, 0, len(all)+1)
	for _, o := range all {
		switch {
		case o.To <= forget:
		case o.To < added.From || o.From > added.To:
			list = append(list, o)
		default: // they overlap or touch
			union := Outage{From: min(o.From, added.From), To: max(o.To, added.To)}
			union.Length = min(o.Length+added.Length, union.To-union.From)
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

// merge makes one of the two neighbours that span the least time.
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

// Away says when the server could not hear or answer. Immutable once in use; the zero Away is a
// server that was never away.
type Away struct {
	// Server are the times in which the process or the machine stood still. They count for each limit
	// that the peer can only keep while the server hears and answers.
	Server Outages
	// Silent are the times in which nothing was heard from any connection, so that the network was
	// probably down. Their Length leaves out what Server has. They count for the same limits, but
	// only if they began before the deadline as Server makes it: they are inferred, and must not add
	// up without end.
	Silent Outages
	// HeldSince is when such a time began that goes on; 0 if there is none. Verdicts about peers are
	// held meanwhile.
	HeldSince time.Duration
	// Loop are the outages of Server together with the times in which the event loop of the
	// connection was blocked. They count for limits that need the loop: the kernel goes on to
	// receive while a loop is blocked, so an idle timeout needs no more than what the kernel says.
	Loop Outages
}

// putOff returns a deadline after the outages of Server and Silent, and whether a silence that goes
// on holds it. The peer was heard last after the given instant.
func (a *Away) putOff(d deadline, heard, grace time.Duration) (due time.Duration, held bool) {
	all := postponed{limit: d.due}
	certain := all // by Server alone
	server, silent := a.Server, a.Silent
	if grace < 0 {
		silent = nil
	}
	var counted time.Duration // the end of the last silence that counts, with the gaps inside
	for len(server) > 0 || len(silent) > 0 {
		if len(silent) == 0 || len(server) > 0 && server[0].From < silent[0].From {
			o, more := server[0], min(server[0].Length, grace)
			if o.From <= certain.due() {
				certain.pass(o, d.since, heard, more)
			}
			o.Length = min(o.Length, max(o.To-counted, 0))
			if o.From <= all.due() && o.Length > 0 {
				all.pass(o, d.since, heard, more)
			}
			server = server[1:]
			continue
		}
		if o := silent[0]; o.From <= certain.due() {
			span := o.To - o.From
			o.Length = min(o.Length+a.Server.Within(o.From, o.To), span)
			all.pass(o, d.since, heard, min(span, grace))
			counted = o.To
		}
		silent = silent[1:]
	}
	return all.due(), grace >= 0 && a.HeldSince != 0 && a.HeldSince <= certain.due()
}

// A postponed deadline is the later one of two: that of the limit, and the end of the grace.
type postponed struct{ limit, grace time.Duration }

func (p *postponed) due() time.Duration { return max(p.limit, p.grace) }

// pass takes an outage into account that began before the deadline, of a limit that counts from since.
// The outage
//   - does not count: the deadline of the limit is as much later as the outage was long after since,
//     and the grace of an earlier outage as much as this one was long, and
//   - gives a peer that was not heard since then a grace, about as long as the outage was, because the
//     peer retransmits at intervals that double with each attempt (RFC 6298, 5.5). If more is
//     negative, it does not.
func (p *postponed) pass(o Outage, since, heard, more time.Duration) {
	if o.From <= p.grace {
		p.grace += o.Length
	}
	p.limit += o.after(since)
	if heard < o.To && more >= 0 {
		p.grace = max(p.grace, o.To+more)
	}
}

// putOffLoop returns a deadline after the outages of an event loop and of the server. What the loop was
// blocked besides counts for at most once more the limit, so that a loop that is always busy keeps no
// dead connection. If the loop was blocked when the deadline passed, and the server was not away, the
// deadline is not earlier than the length of the block after its end, at most the limit.
func (a *Away) putOffLoop(d deadline, heard, grace time.Duration) time.Duration {
	due, again := d.due, deadline{}
	for _, o := range a.Loop {
		if o.From <= due {
			due += o.after(d.since)
		}
		if o.covers(d.due) && !slices.ContainsFunc(a.Server, func(s Outage) bool { return s.covers(d.due) }) {
			again = deadline{o.To, d.limit, o.To + min(o.Length, d.limit)}
		}
	}
	blocked := due - d.due - a.Server.Within(d.since, due)
	d.due += min(max(blocked, 0), d.limit)
	due, _ = a.putOff(d, heard, grace)
	if again != (deadline{}) {
		later, _ := a.putOff(again, heard, grace)
		due = max(due, later)
	}
	return due
}
