package result

import (
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

// A Counter is a count that each Group has.
type Counter struct {
	Name, Hint string
	Figure     string  // name in an expectation; may be empty
	Main       bool    // worth showing even if it is 0
	Fault      Outcome // of a run in which it is not 0, unless it is expected; may be empty
	Of         func(*Group) uint64
}

// Counters are the counts of a Group, in the order in which to show them.
var Counters = []Counter{
	{"requested", "", "", true, "", func(g *Group) uint64 { return uint64(max(g.Connections, 0)) }},
	{"opened", "", "", true, "", func(g *Group) uint64 { return g.Opened }},
	{"false reaps", "living connections closed by the target", "false-reaps", true, Failed, func(g *Group) uint64 { return g.Lost }},
	{"reaped", "dead connections closed by the target", "reaped", true, "", func(g *Group) uint64 { return g.Reaped }},
	{"early", "reaped before their timeout", "early", true, Failed, func(g *Group) uint64 { return g.Early }},
	{"kept", "dead connections open at the end of the run", "kept", true, Failed, func(g *Group) uint64 { return g.Kept }},
	{"messages", "sent", "", true, "", func(g *Group) uint64 { return g.Messages }},
	{"answers", "received", "", true, "", func(g *Group) uint64 { return g.Answers }},
	{"not opened", "", "open-failed", false, Failed, func(g *Group) uint64 { return g.OpenFailed }},
	{"starved", "closed because this client did not send in time", "starved", false, NotValid, func(g *Group) uint64 { return g.Starved }},
	{"with a wrong answer", "received something other than their echo", "garbled", false, Failed, func(g *Group) uint64 { return g.Garbled }},
	{"without an answer", "connections that waited too long at the end", "unanswered", false, Failed, func(g *Group) uint64 { return g.Unanswered }},
	{"unanswered messages", "waited too long, or were lost with their connection", "", false, Failed, (*Group).unansweredMessages},
	{"swapped answers", "to messages of other connections", "swapped", false, Failed, func(g *Group) uint64 { return g.Swapped }},
	{"doubled answers", "came more than once", "doubled", false, Failed, func(g *Group) uint64 { return g.Doubled }},
	{"skipped messages", "without an answer although later ones have one", "skipped", false, Failed, func(g *Group) uint64 { return g.Skipped }},
	{"reset", "closed by the target with a reset", "", false, "", func(g *Group) uint64 { return g.Reset }},
	{"with a goodbye", "received data before the close", "", false, "", func(g *Group) uint64 { return g.Told }},
	{"closed by this client", "", "", false, "", func(g *Group) uint64 { return g.Ended }},
	{"vanished", "left half-open by this client", "", false, "", func(g *Group) uint64 { return g.Vanished }},
}

func (g *Group) unansweredMessages() (n uint64) {
	for _, e := range g.Exchanges {
		n += e.Unanswered
	}
	return n
}

// Times are measured durations with their name.
type Times struct {
	Name string
	Latency
}

// Times returns all durations of a result that were measured.
func (r *Result) Times() (all []Times) {
	add := func(name string, h *Histogram) {
		if h.Count() > 0 {
			all = append(all, Times{name, Latency{Corrected: *h}})
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		add(g.Name+": connected in", &g.Connect)
		for _, p := range r.Phases {
			l := g.Latency[p.Name]
			if l == nil || l.Count() == 0 {
				continue
			}
			name := g.Name + ": answer, " + p.Name
			if n := l.Unanswered.Count(); n > 0 {
				name += ", " + format.Count(n) + " unanswered"
			}
			all = append(all, Times{name, *l})
			if l.Raw.Quantile(0.99) < l.Corrected.Quantile(0.99)*9/10 {
				add(g.Name+": raw answer, "+p.Name, &l.Raw)
			}
		}
		add(g.Name+": lateness of reaps", &g.Lateness)
		add(g.Name+": lifetime", &g.Lifetime)
	}
	for _, p := range r.Phases {
		add("own delay of loadtest, "+p.Name, r.OwnDelay[p.Name])
	}
	return all
}

// Length returns how long a phase took. It is 0 if it did not begin.
func (r *Result) Length(phase string) time.Duration {
	for _, p := range r.Phases {
		if p.Name == phase {
			return p.To - p.From
		}
	}
	return 0
}

// Sentence describes the run.
func (r *Result) Sentence() string {
	s := &r.Setup
	to := strings.Join(Some(s.Targets, 3), ", ")
	if s.Servers > 0 {
		to = format.Plural(s.Servers, "launched server", "launched servers")
	}
	said := r.Verb + ": " + format.Plural(s.Connections, "connection", "connections") +
		" from " + format.Plural(s.Clients, "client process", "client processes") + " to " + to
	if s.Bare {
		said += ", without a reaper"
	}
	if s.Timeout > 0 {
		said += ", with an idle timeout of " + format.Duration(s.Timeout)
	}
	return said + ", in " + format.Duration(r.Took) + "."
}

// Some returns the first elements, and the number of the others as text.
func Some(all []string, most int) []string {
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most]), "and "+format.Count(len(all)-most)+" more")
}
