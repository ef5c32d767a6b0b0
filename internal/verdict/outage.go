package verdict

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// An Outage is a time in which the server could not hear or answer its peers: its process was
// stopped, its machine was paused, its network was down, or its event loop was blocked.
type Outage struct {
	From, To mono.Time
	// Length is To - From for one outage, and the sum of the lengths where several were merged.
	Length time.Duration
	More   int           // how many were merged, except for one
	Rest   time.Duration // of Length, without the longest of those that were merged
	// Lost is the instant since which segments may be lost that were not sent again between those
	// that were merged. 0 is From.
	Lost mono.Time
}

// lost returns Lost, or From if it is 0.
func (o Outage) lost() mono.Time { return max(o.From, o.Lost) }

// longest returns the length of the longest outage of those that were merged.
func (o Outage) longest() time.Duration { return o.Length - o.Rest }

// beyond returns the time after an instant by which the merged outages were longer than a limit.
func (o Outage) beyond(since mono.Time, limit time.Duration) time.Duration {
	length := o.after(since)
	return max(length-time.Duration(o.More+1)*limit, min(length, o.longest())-limit, 0)
}

// after returns the part of the outage that lies after an instant.
func (o Outage) after(since mono.Time) time.Duration {
	return max(min(o.Length, o.To.Sub(since)), 0)
}

// Outages is a short list of outages in the order of time. They do not overlap.
type Outages []Outage

// maxOutages bounds an Outages list. In a full list two neighbours become one entry, see merge. The
// recent past stays exact, and nothing is forgotten too early.
const maxOutages = 32

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
			union.More, union.Rest, union.Lost = max(o.More, added.More), max(o.Rest, added.Rest), min(o.lost(), added.lost())
			if max(o.From, added.From) == min(o.To, added.To) { // two, less than a tick apart
				union.count(o, added)
			}
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

// AddApart is Add for an outage of another part of the way. If two overlap, each counts.
func (all Outages) AddApart(added Outage) Outages {
	for _, o := range all {
		order, overlap := cmp.Compare(o.From, added.From), max(o.From, added.From) <= min(o.To, added.To)
		if overlap && order != 0 && order == cmp.Compare(o.To, added.To) { // neither lies in the other
			apart := Outage{Length: o.Length + added.Length}
			apart.count(o, added)
			added.More, added.Rest = max(added.More, apart.More), max(added.Rest, apart.Rest)
		}
	}
	return all.Add(added, 0)
}

// merge joins the two neighbours that span the least part of the time since they began. So old ones
// are joined first, also if all are as far apart: an entry of the recent past that spans much time
// would keep a dead peer for as long.
func (all Outages) merge() Outages {
	end, least, part := all[len(all)-1].To, 0, math.Inf(1)
	for i := range len(all) - 1 {
		span, age := all[i+1].To.Sub(all[i].From), end.Sub(all[i].From)
		if p := float64(span) / float64(age); p < part {
			least, part = i, p
		}
	}
	a, b := all[least], all[least+1]
	all[least] = Outage{From: a.From, To: b.To, Length: a.Length + b.Length, Lost: a.lost()}
	if b.From >= a.To.Add(a.To.Sub(a.lost())+Resend) {
		all[least].Lost = b.lost()
	}
	all[least].count(a, b)
	return slices.Delete(all, least+1, least+2)
}

// count says how many outages an outage is, and how long they are without the longest one.
func (o *Outage) count(a, b Outage) {
	o.More = a.More + b.More + 1
	o.Rest = max(o.Length-max(a.longest(), b.longest()), 0)
}

// Away has the times in which the server could not hear or answer its peers. Immutable once in use.
// The zero Away has none.
type Away struct {
	// Server are the times in which the process or the machine was paused. They count for each
	// limit that a peer can keep only while the server hears and answers it.
	Server Outages
	// All are the outages of Server, and the times in which nothing was heard from any connection,
	// so that the network was probably down. They count for the same limits.
	All Outages
	// Holds are the beginnings of silences of all connections that last, in ascending order. In
	// Group there are those of groups as well. Verdicts about peers are held meanwhile.
	Holds []mono.Time
	// Loop are the outages of Server and the times in which the event loop of the connection was
	// blocked. They count for limits that need the loop. Idle timeouts do not: the kernel receives
	// while a loop is blocked, and its answer suffices.
	Loop Outages
	// Group, if not nil, also has the silences of groups of the connection. They count for idle
	// timeouts and heartbeats: they say nothing of a peer that does not get on.
	Group *Away
}

// Of returns the times that count for a reason.
func (away *Away) Of(r Reason) *Away {
	if away.Group != nil && (IsIdle(r) || r == reap.HeartbeatTimeout) {
		return away.Group
	}
	return away
}

// NewAway returns the times in which the process or the machine was paused, and in which nothing
// was heard from any connection.
func NewAway(server, silent Outages) Away {
	away := Away{Server: server, All: server, Loop: server}
	for _, o := range silent {
		away.All = away.All.Add(o, 0)
	}
	return away
}

const (
	// Resend is the time until a Linux peer first sends a lost segment again: its least
	// retransmission timeout, and as much as the round trip of a distant peer adds.
	Resend = 250 * time.Millisecond
	// MaxTimeouts bounds the time by which outages put a verdict off: a dead peer is closed so many
	// timeouts after it was heard, and later only by the time that outages were longer than one
	// timeout, and by the longest of them once.
	MaxTimeouts = 24
	// chancePart is the part of a limit that is added to a chance, in which the next silence of all
	// connections is noticed.
	chancePart = 8
)

// putOff returns a deadline after the outages. The peer was heard last after the given instant.
//   - An outage does not count: the deadline moves by the part of it after since.
//   - A peer that was not heard since an outage gets a chance. TCP sends a lost segment again
//     after intervals that double (RFC 6298, 5.5). A segment that was lost first at an instant or
//     later is sent again in any time without outage that is as long as the time from that instant
//     to its beginning. So the chance is such a time, for segments that were lost since the first
//     outage for which the peer has had none.
//   - A part of the limit is added, in which the next silence of all connections is noticed. If the
//     peer had the limit and the chance before an outage, it goes on after it. If it began again,
//     short outages in quick succession would keep a dead peer.
func (lim *Limits) putOff(d deadline, heard mono.Time, away *Away) mono.Time {
	all := away.All
	if lim.Grace < 0 {
		all = away.Server
	}
	due, bound := d.due, lim.bound(d, heard, all)
	lost := Never                      // the first segment lost since the last chance
	resent, chance := d.since, d.since // the end of the next chance, without and with the added part
	for _, o := range all {
		if o.From > d.due {
			break
		}
		passed := o.From >= due && o.From < chance
		due = due.Add(o.after(d.since))
		if heard < o.To && lim.Grace >= 0 {
			isResent := lost == Never || o.From >= resent
			if isResent {
				lost = o.lost()
			}
			if isResent && passed {
				chance = o.To.Add(chance.Sub(o.From))
			} else {
				resend := min(o.To.Sub(lost), lim.Grace)
				resent = o.To.Add(resend + lim.Resend)
				chance = o.To.Add(resend + max(d.limit/chancePart, lim.Resend))
			}
		}
		d.due = min(max(due, chance), bound)
	}
	return d.due
}

// Timeouts returns the time of MaxTimeouts limits. For limits of years it is 146 years at most, of
// the 292 that a time can have.
func Timeouts(limit time.Duration) time.Duration {
	return MaxTimeouts * min(limit, math.MaxInt64/2/MaxTimeouts)
}

// bound returns the latest deadline that outages can give, see MaxTimeouts. The longest one is
// added because TCP may be silent for as long after it.
func (lim *Limits) bound(d deadline, heard mono.Time, all Outages) mono.Time {
	bound, longest := d.since.Add(Timeouts(d.limit)), time.Duration(0)
	for _, o := range all {
		bound = bound.Add(o.beyond(d.since, d.limit))
		if heard < o.To {
			longest = max(longest, o.longest())
		}
	}
	return bound.Add(min(longest, max(lim.Grace, 0)))
}

// putOffLoop returns a deadline after the outages of an event loop and of the server. Times in
// which only the loop was blocked add at most the limit once more, so that a loop that is always
// busy keeps no dead connection. If only the loop was blocked when the deadline passed, the
// connection gets as much time after the block as it lasted, at most the limit.
func (lim *Limits) putOffLoop(d deadline, heard mono.Time, a *Away) mono.Time {
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
	return max(lim.putOff(d, heard, a), lim.putOff(again, heard, a))
}
