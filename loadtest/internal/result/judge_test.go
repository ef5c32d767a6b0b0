package result

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func times(d ...time.Duration) *Histogram {
	h := &Histogram{}
	for _, d := range d {
		h.Record(d)
	}
	return h
}

// faultless returns a result without a fault: 100 connections are held and reaped after 10 s.
func faultless() *Result {
	return &Result{
		Schema: Schema, Verb: "hold", Took: 40 * time.Second,
		Setup: Setup{Connections: 100, Timeout: 10 * time.Second, Patience: 20 * time.Second, Rate: 100},
		Phases: []Phase{
			{"open", 0, time.Second}, {"hold", time.Second, 20 * time.Second}, {"silent", 20 * time.Second, 40 * time.Second},
		},
		Counts: Counts{Groups: []Group{{
			Name: "living", Behaviour: "heartbeat", Connections: 100, Opened: 100, Reaped: 100, Messages: 1000, Answers: 1000,
			Exchanges: map[string]*Exchange{"hold": {Sent: 1000, Answered: 1000}},
			Connect:   *times(time.Millisecond), Lateness: *times(50*time.Millisecond, 60*time.Millisecond),
			Latency: map[string]*Latency{
				"hold": {Corrected: *times(2 * time.Millisecond), Raw: *times(time.Millisecond)},
				"slow": {Corrected: *times(80 * time.Millisecond), Raw: *times(80 * time.Millisecond)},
			},
		}}, OwnDelay: map[string]*Histogram{"hold": times(time.Millisecond), "silent": times(2 * time.Millisecond)}},
		Costs: &Costs{ClientBytes: 300, ServerBytes: 700},
	}
}

// late makes the program itself late in the phase of silence.
func late(by time.Duration) func(*Result) {
	return func(r *Result) { r.OwnDelay["silent"] = times(by) }
}

func expecting(text string) func(*Result) {
	return func(r *Result) {
		e, err := ParseExpectation(text)
		if err != nil {
			panic(err)
		}
		r.Expectations = append(r.Expectations, e)
	}
}

// TestVerdict has both sides of each rule.
func TestVerdict(t *testing.T) {
	group := func(change func(g *Group)) func(*Result) {
		return func(r *Result) { change(&r.Groups[0]) }
	}
	hostile := group(func(g *Group) { g.Hostile = true })
	churn := func(r *Result) {
		r.Verb, r.Phases[1].Name, r.Groups[0].Behaviour = "churn", "churn", "churn"
		r.Phases[1].From, r.Phases[1].To = time.Second, 11*time.Second
	}
	lateness := func(d time.Duration) func(*Result) { return group(func(g *Group) { g.Lateness = *times(d) }) }
	type changes []func(*Result)
	for _, tt := range []struct {
		name    string
		changes changes
		want    Outcome
		cause   string // part of the causes; for a passed result of the remarks
	}{
		{"no fault", nil, Passed, ""},
		{"garbled", changes{group(func(g *Group) { g.Garbled = 1 })}, Failed, "garbled: 1 connection received a wrong answer"},
		{"garbled, expected", changes{group(func(g *Group) { g.Garbled = 1 }), expecting("garbled<=1")}, Passed, ""},
		{"garbled attackers", changes{hostile, group(func(g *Group) { g.Garbled = 1 })}, Failed, "garbled"},
		{"swapped", changes{group(func(g *Group) { g.Swapped = 2 })}, Failed, "swapped: 2 answers of other connections"},
		{"swapped, expected", changes{group(func(g *Group) { g.Swapped = 2 }), expecting("swapped<3")}, Passed, ""},
		{"doubled", changes{group(func(g *Group) { g.Doubled = 2 })}, Failed, "doubled: 2 answers came more than once"},
		{"doubled, expected", changes{group(func(g *Group) { g.Doubled = 2 }), expecting("doubled==2")}, Passed, ""},
		{"skipped", changes{group(func(g *Group) { g.Skipped = 3 })}, Failed, "skipped: 3 messages"},
		{"skipped attackers", changes{hostile, group(func(g *Group) { g.Skipped = 3 })}, Passed, ""},
		{"false reaps", changes{group(func(g *Group) { g.Lost = 1 })}, Failed, "false-reaps: 1 living connection was closed"},
		{"false reaps with a reason", changes{group(func(g *Group) { g.Lost, g.Said = 2, "no room" })}, Failed, `living connections were closed; the target said "no room"`},
		{"false reaps of attackers", changes{hostile, group(func(g *Group) { g.Lost = 1 })}, Passed, ""},
		{"false reaps by a late program", changes{late(3 * time.Second), group(func(g *Group) { g.Lost = 1 })}, Failed, "false-reaps"},
		{"early", changes{group(func(g *Group) { g.Early, g.EarliestBy = 16, 12*time.Millisecond })}, Failed, "early 16 by at most 12ms"},
		{"early by the tolerance", changes{group(func(g *Group) { g.Early, g.EarliestBy = 16, time.Millisecond })}, Passed,
			"early 16 by at most 1ms, within the tolerance of 1ms"},
		{"early by a nanosecond more", changes{group(func(g *Group) { g.Early, g.EarliestBy = 1, time.Millisecond+1 })}, Failed, "early 1"},
		{"early, expected", changes{group(func(g *Group) { g.Early, g.EarliestBy = 1, time.Second }), expecting("early-by<=1s")}, Passed, ""},
		{"early, none expected", changes{group(func(g *Group) { g.Early, g.EarliestBy = 1, 1 }), expecting("early==0")}, Failed, "expected early==0, got 1"},
		{"kept", changes{group(func(g *Group) { g.Kept = 2 })}, Failed, "kept: 2 dead connections were not closed"},
		{"kept by a bare server", changes{group(func(g *Group) { g.Kept = 2 }), func(r *Result) { r.Setup.Bare = true }}, Passed, ""},
		{"kept without a timeout", changes{group(func(g *Group) { g.Kept = 2 }), func(r *Result) { r.Setup.Timeout = 0 }}, Passed, ""},
		{"kept by a late program", changes{late(3 * time.Second), group(func(g *Group) { g.Kept = 2 })}, NotValid, "late by up to"},
		{"not opened", changes{group(func(g *Group) { g.OpenFailed, g.Opened = 4, 96 })}, Failed, "open-failed: 4 connections were not opened"},
		{"never tried", changes{group(func(g *Group) { g.Opened = 96 })}, Failed, "open-failed: 4"},
		{"not opened, expected", changes{group(func(g *Group) { g.OpenFailed, g.Opened = 4, 96 }), expecting("open-failed<=4")}, Passed, ""},
		{"attackers not opened", changes{hostile, group(func(g *Group) { g.OpenFailed, g.Opened = 4, 96 })}, Passed, ""},
		{"not opened by this machine", changes{group(func(g *Group) { g.OpenFailed, g.Opened = 4, 96 }),
			func(r *Result) { r.Failures = Failures{"socket: too many open files": 4} }}, NotValid, "4 connections were not opened by this machine"},
		{"not opened by both", changes{group(func(g *Group) { g.OpenFailed, g.Opened = 4, 96 }),
			func(r *Result) {
				r.Failures = Failures{"socket: too many open files": 3, "connect: connection refused": 1}
			}}, Failed, "open-failed: 1"},
		{"nothing opened", changes{group(func(g *Group) { g.Opened, g.Connections = 0, 0 })}, NotValid, "no connection was opened"},
		{"unanswered", changes{group(func(g *Group) { g.Exchanges["hold"] = &Exchange{Sent: 1000, Answered: 990, Unanswered: 10} })}, Failed,
			"unanswered: 10 messages were not answered"},
		{"unanswered, of connections", changes{group(func(g *Group) { g.Unanswered = 1 })}, Failed, "unanswered: 1 message"},
		{"never answered", changes{group(func(g *Group) { g.Exchanges["hold"].Answered = 160 })}, Failed, "unanswered: 840"},
		{"on its way at the end", changes{group(func(g *Group) { g.Exchanges["silent"] = &Exchange{Sent: 10} })}, Passed, ""},
		{"on its way on a starved connection", changes{group(func(g *Group) { g.Exchanges["hold"].Answered, g.Starved = 999, 1 })}, NotValid, "starved"},
		{"unanswered attackers", changes{hostile, group(func(g *Group) { g.Exchanges["hold"].Answered = 160 })}, Passed, ""},
		{"unanswered by a late program", changes{late(3 * time.Second), group(func(g *Group) { g.Exchanges["hold"].Answered = 160 })}, NotValid, "unanswered: 840"},
		{"starved", changes{group(func(g *Group) { g.Starved = 50 })}, NotValid, "starved: 50 connections were not kept alive by loadtest itself"},
		{"starved, expected", changes{group(func(g *Group) { g.Starved = 50 }), expecting("starved<=50")}, Passed, ""},
		{"starved and garbled", changes{group(func(g *Group) { g.Starved, g.Garbled = 50, 1 })}, Failed, "garbled"},
		{"late by more than a tenth", changes{late(1100 * time.Millisecond)}, NotValid, "loadtest itself, not the target, was late by up to 1.1"},
		{"late by less than a tenth", changes{late(900 * time.Millisecond)}, Passed, ""},
		{"late by more than half of a figure", changes{func(r *Result) { r.OwnDelay["hold"] = times(21 * time.Millisecond) }}, NotValid, "latency.hold.p99 is 2ms"},
		{"late by little", changes{func(r *Result) { r.OwnDelay["hold"] = times(19 * time.Millisecond) }}, Passed, ""},
		{"reaped late", changes{lateness(1100 * time.Millisecond)}, Failed, "lateness: p99 of 1.1"},
		{"reaped late by a timeout", changes{lateness(6 * time.Second)}, Failed, "more than 1s; a target that suspends verdicts while all are silent needs --outage-grace -1s"},
		{"reaped late by less than a tenth", changes{lateness(900 * time.Millisecond)}, Passed, ""},
		{"reaped late, expected", changes{lateness(1100 * time.Millisecond), expecting("lateness.p99<2s")}, Passed, ""},
		{"reaped late by a late program", changes{lateness(1100 * time.Millisecond), late(1200 * time.Millisecond)}, NotValid, "lateness: p99"},
		{"late by little of a short timeout", changes{late(90 * time.Millisecond), func(r *Result) { r.Setup.Timeout = 100 * time.Millisecond }}, Passed, ""},
		{"late by more than a tenth of the patience", changes{late(3 * time.Second), func(r *Result) { r.Setup.Timeout = 0 }}, NotValid, "of the patience"},
		{"late, expected", changes{late(1100 * time.Millisecond), expecting("own-delay.max<=2s")}, Passed, "late by up to 1.1"},
		{"late in a phase of which nothing is expected", changes{late(1100 * time.Millisecond), expecting("own-delay.hold.max<=2s")}, NotValid, "late by up to 1.1"},
		{"late, expected of a phase that was not", changes{expecting("own-delay.durnig.max<=2s")}, Failed, "own-delay.durnig.max<=2s, got not measured"},
		{"expectation", changes{expecting("lateness.p99<55ms")}, Failed, "expected lateness.p99<55ms, got 6"},
		{"expectation that holds", changes{expecting("lateness.p99<65ms")}, Passed, ""},
		{"expectation that the own delay explains", changes{late(40 * time.Millisecond), expecting("lateness.p99<55ms")}, NotValid, "the delay of loadtest itself decides"},
		{"expectation that the own delay does not explain", changes{late(3 * time.Millisecond), expecting("lateness.p99<55ms")}, Failed, "lateness.p99"},
		{"lower bound that the own delay reaches", changes{late(40 * time.Millisecond), expecting("lateness.p50>=45ms")}, NotValid, "lateness.p50"},
		{"lower bound", changes{expecting("lateness.p50>=45ms")}, Passed, ""},
		{"latency in a phase without delay", changes{late(500 * time.Millisecond), expecting("latency.slow.p99<50ms")}, Failed, "latency.slow.p99"},
		{"latency in a phase with delay", changes{func(r *Result) { r.OwnDelay["slow"] = times(70 * time.Millisecond) }, expecting("latency.slow.p99<50ms")},
			NotValid, "latency.slow.p99"},
		{"fault of the target", changes{func(r *Result) { r.Errors = []string{"it hangs"} }}, Failed, "it hangs"},
		{"fault of this machine", changes{func(r *Result) { r.Faults = []string{"a client process ended"} }}, NotValid, "a client process ended"},
		{"interrupted", changes{func(r *Result) { r.Interrupted = true }}, NotValid, "the run was interrupted after 40s"},
		{"interrupted with a fact", changes{func(r *Result) { r.Interrupted = true }, group(func(g *Group) { g.Lost = 1 })}, Failed, "false-reaps"},
		{"churn at the rate", changes{churn, group(func(g *Group) { g.Opened = 950 })}, Passed, ""},
		{"churn below the rate", changes{churn, group(func(g *Group) { g.Opened = 850 })}, NotValid, "85 of 100 connections per second were opened"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := faultless()
			for _, change := range tt.changes {
				change(r)
			}
			r.Judge()
			require.Equal(t, tt.want, r.Verdict.Outcome, "%+v", r.Verdict)
			text := strings.Join(r.Verdict.Causes, "\n")
			if tt.want == Passed {
				require.Empty(t, text)
				text = strings.Join(r.Verdict.Remarks, "\n")
			}
			require.Contains(t, text, tt.cause)
			first := r.Verdict
			r.Judge()
			require.Equal(t, first, r.Verdict, "a second judgement changes nothing")
		})
	}
}

func TestExpectations(t *testing.T) {
	for text, want := range map[string]string{
		"held>=100%": "100%", "held==99%": "!100%", "lateness.max<1s": "6", "lateness.p99.9 <= 1s": "6", "latency.max<100ms": "80",
		"latency.hold.p50<3ms": "2", "latency.other.p50<3ms": "!not measured", "connect.p99<5ms": "1", "lifetime.max<1h": "!not measured",
		"reaped==100": "100", "open-within<=1s": "1s", "open-within<1s": "!1s", "client-bytes<301": "300", "server-bytes>700": "!700",
		"own-delay.max<1s": "2", "own-delay.hold.max<1500us": "1", "early-by<1s": "0s", "kept<1": "0", "early<=0": "0", "false-reaps==0": "0",
	} {
		e, err := ParseExpectation(text)
		require.NoError(t, err, text)
		r := faultless()
		r.Expectations = []Expectation{e}
		r.Judge()
		got, failed := strings.CutPrefix(want, "!")
		require.Contains(t, r.Expectations[0].Got, got, text)
		require.Equal(t, !failed, r.Expectations[0].OK, text)
	}
	for _, c := range Counters {
		require.Contains(t, ", "+figureNames, ", "+c.Figure)
	}
	names, _, _ := strings.Cut(strings.NewReplacer("PHASE", "hold", ".Q", ".p99").Replace(figureNames), " (")
	for name := range strings.SplitSeq(names, ", ") {
		_, kind := faultless().read(name)
		require.NotNil(t, kind, name)
	}
	for text, want := range map[string]string{
		"": "set a condition", "early": "set a condition", "bogus<1": "the names are client-bytes, doubled, early,", "lateness.p98<1s": "is not known",
		"lateness<1s": "is not known", "lateness.hold.p99<1s": "is not known", "early=0": "the operators are", "early<>0": "the operators are",
		"early<": "set a value such as 0", "lateness.p99<250": "set a value such as 250ms", "held>=101%": "such as 100%", "held>=nan": "such as 100%",
		"latency.p99<x": "such as 250ms",
	} {
		_, err := ParseExpectation(text)
		require.ErrorContains(t, err, want, text)
	}
}
