package page

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// storm returns a result with all parts: 100,000 connections are opened in 12 s and held for 60 s.
// Some of them live through a storm, and the others are reaped.
func storm() *result.Result {
	r := &result.Result{
		Schema: result.Schema, Verb: "storm", Command: "loadtest storm --connections 100000 --servers 4 --timeout 30s --expect false-reaps==0",
		Began: time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC), Took: 94*time.Second + 300*time.Millisecond,
		Counts: result.Counts{Notes: []string{"split over 4 client processes", "both ends are on this machine"}},
		Machines: []result.Machine{
			{Name: "bench-1", CPUs: 16, CPU: "AMD EPYC 7B13", Memory: 64 << 30, Kernel: "6.12.43", Go: "go1.26.8", Descriptors: 1 << 20},
		},
		Setup: result.Setup{
			Targets: []string{"127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"}, Connections: 100_000, Clients: 4, Servers: 4,
			Timeout: 30 * time.Second, Tick: 200 * time.Millisecond, Flags: map[string]string{"jitter": "0.1", "bare": "false"},
		},
		Costs: &result.Costs{
			Connections: 100_000, ServerBytes: 1312, BareBytes: 800, ClientBytes: 2210, KernelBytes: 5890, BothEnds: true,
			ServerCPU: 41 * time.Second, ClientCPU: 63 * time.Second,
		},
		Expectations: []result.Expectation{
			{Name: "false-reaps", Want: "<=0"}, {Name: "lateness.p99", Want: "<=250ms"}, {Name: "open-failed", Want: "<=100"},
		},
	}
	for i, name := range []string{"open", "before", "during", "after", "silent"} {
		at := []time.Duration{0, 12, 32, 52, 72, 94}
		r.Phases = append(r.Phases, result.Phase{Name: name, From: at[i] * time.Second, To: at[i+1] * time.Second})
	}
	r.Groups, r.Samples = stormGroups(), stormSamples()
	return r
}

func stormGroups() []result.Group {
	random := rand.New(rand.NewPCG(1, 2))
	living := result.Group{
		Name: "living", Behaviour: "a message every 5 s", Connections: 20_000, Opened: 20_000, Messages: 318_400, Answers: 318_400,
		Ended: 20_000, Latency: map[string]*result.Latency{},
	}
	for phase, scale := range map[string]float64{"before": 120, "during": 900, "after": 140} {
		l := &result.Latency{}
		seeded := rand.New(rand.NewPCG(3, uint64(scale)))
		for range 40_000 {
			d := time.Duration(scale*math.Exp(seeded.NormFloat64()*0.9)) * time.Microsecond
			l.Corrected.Record(d + d/4)
			l.Raw.Record(d)
		}
		living.Latency[phase] = l
	}
	silent := result.Group{
		Name: "silent", Behaviour: "a message, then nothing", Connections: 80_000, Opened: 80_000, Messages: 80_000, Answers: 80_000,
		Reaped: 80_000, Told: 80_000,
	}
	for range 80_000 {
		silent.Connect.Record(time.Duration(80+random.ExpFloat64()*300) * time.Microsecond)
		living.Connect.Record(time.Duration(80+random.ExpFloat64()*280) * time.Microsecond)
		silent.Lateness.Record(time.Duration(random.Float64()*200)*time.Millisecond + time.Duration(random.ExpFloat64()*800)*time.Microsecond)
	}
	return []result.Group{living, silent}
}

func stormSamples() (samples []result.Sample) {
	random := rand.New(rand.NewPCG(5, 6))
	messages, server, client := 0.0, 0.0, 0.0
	for i := range 189 {
		at := float64(i) / 2
		open, rate := 100_000*min(at/12, 1), 4000.0
		switch {
		case at < 12:
			rate = 8300
		case at >= 32 && at < 52:
			rate = 22_000
		case at > 72:
			open, rate = 100_000-80_000*min((at-72)/12, 1), 4000
		}
		if at >= 93 {
			open = 0
		}
		rate *= 1 + random.NormFloat64()*0.04
		messages += rate / 2
		server += 0.1 + rate/12_000
		client += 0.15 + rate/9_000
		samples = append(samples, result.Sample{
			At: time.Duration(at * float64(time.Second)), Open: uint64(open), Opened: uint64(100_000 * min(at/12, 1)), Messages: uint64(messages),
			Server: result.Usage{RSS: 24<<20 + uint64(open*1312), CPU: time.Duration(server * float64(time.Second))},
			Client: result.Usage{RSS: 60<<20 + uint64(open*2210), CPU: time.Duration(client * float64(time.Second))},
			Kernel: 8<<20 + uint64(open*5890),
			Latency: result.Quantiles{
				Count: uint64(rate / 2), P50: time.Duration(rate*20) * time.Nanosecond, P99: time.Duration(rate*120) * time.Nanosecond,
				Max: time.Duration(rate*(400+random.ExpFloat64()*900)) * time.Nanosecond,
			},
		})
	}
	return samples
}

// failed returns a storm with failures.
func failed() *result.Result {
	r := storm()
	r.Failures = result.Failures{"connect: connection refused": 12, "connect: i/o timeout": 3}
	r.Groups[0].Opened, r.Groups[0].OpenFailed = 19_985, 15
	r.Groups[1].Early, r.Groups[1].EarliestBy = 4, 3*time.Millisecond
	r.Groups[1].Lateness.Record(20 * time.Second)
	r.Expectations[0] = result.Expectation{Name: "early", Want: "<=0"}
	return r
}

// hostile is a text that breaks out of every context without escaping.
const hostile = "\"'><script>alert(1)</script></title></desc></style>&amp;{{.}}\x00\x1b\xff\u202e<img src=x onerror=alert(2)>"

func attacked() *result.Result {
	r := storm()
	r.Verb, r.Command, r.Setup.Targets, r.Setup.Servers = hostile, hostile, []string{hostile, "javascript:alert(1)"}, 0
	r.Errors, r.Notes, r.Failures = []string{hostile}, []string{hostile}, result.Failures{hostile: 3}
	r.Machines[0] = result.Machine{Name: hostile, CPU: hostile, Kernel: hostile, Go: hostile}
	r.Expectations = []result.Expectation{{Name: hostile, Want: hostile, Got: hostile}}
	r.Phases[0].Name, r.Groups[0].Name, r.Groups[0].Behaviour = hostile, hostile, hostile
	r.Groups[0].Latency[hostile] = r.Groups[0].Latency["during"]
	return r
}

func interrupted() *result.Result {
	r := storm()
	r.Interrupted, r.Took, r.Errors = true, 40*time.Second, []string{"client 3 has died: signal: killed", "server 2: no answer for 5 s"}
	r.Samples, r.Phases, r.Expectations = r.Samples[:80], r.Phases[:3], nil
	r.Phases[2].To = 0
	r.Groups[0].Lost, r.Groups[0].Starved, r.Groups[1].Kept = 3, 7, 80_000
	r.Groups[1].Reaped, r.Groups[1].Told, r.Groups[1].Lateness = 0, 0, result.Histogram{}
	return r
}

// results returns the results that every page test uses.
func results() map[string]*result.Result {
	odd := storm()
	odd.Samples = append(odd.Samples, result.Sample{At: math.MaxInt64, Messages: math.MaxUint64})
	odd.Phases = append(odd.Phases, odd.Phases...)
	odd.Setup.Connections, odd.Groups[0].Connections = -1, -1
	odd.Groups[0].Latency["before"].Raw = result.Histogram{}
	return map[string]*result.Result{
		"storm": storm(), "empty": {}, "interrupted": interrupted(), "attacked": attacked(), "failed": failed(), "odd": odd,
		"one group of nothing": {Counts: result.Counts{Groups: []result.Group{{Name: "g"}}}, Samples: make([]result.Sample, 5), Phases: []result.Phase{{}}},
	}
}

func render(t *testing.T, r *result.Result) string {
	t.Helper()
	var b bytes.Buffer
	r.Judge()
	require.NoError(t, Write(&b, r))
	return b.String()
}

var drawn = regexp.MustCompile(`(?s)<svg role.*?</svg>\s*</svg>`)

// TestPagesAreWellFormed writes each page to the directory IDLEWHEEL_PAGES, where the tests with a
// browser find it.
func TestPagesAreWellFormed(t *testing.T) {
	dir := cmp.Or(os.Getenv("IDLEWHEEL_PAGES"), t.TempDir())
	for name, r := range results() {
		t.Run(name, func(t *testing.T) {
			got := render(t, r)
			name := strings.ReplaceAll(name, " ", "-") + ".html"
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(got), 0o644))
			require.Equal(t, got, render(t, r), "the same result gives the same page")
			require.NotContains(t, strings.ToLower(got), "<script")
			require.NotContains(t, got, "<img")
			require.NotRegexp(t, `(?i)https?:|[("'=]//|@import|url\(`, got, "the page requests nothing")
			require.NotContains(t, got, "ZgotmplZ", "html/template trusts the context of every value")
			require.NotRegexp(t, "[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]", got, "no name changes the text direction")
			require.NotRegexp(t, `NaN|[+-]Inf|%!`, got)
			require.True(t, strings.HasSuffix(strings.TrimSpace(got), "</html>"))
			for _, svg := range drawn.FindAllString(got, -1) {
				require.NoError(t, wellFormed(svg), svg)
				require.Regexp(t, `^<svg role="img"><title>[^<]+</title><desc>[^<]+</desc>`, svg)
			}
		})
	}
}

func wellFormed(s string) error {
	for d := xml.NewDecoder(strings.NewReader(s)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestAllPartsAreShown(t *testing.T) {
	got := render(t, storm()) + render(t, failed())
	require.Len(t, drawn.FindAllString(got, -1), 12, "six charts on each page")
	for _, want := range []string{
		"passed", "expected early&lt;=0, got 4", ">99,985</td>", ">15</td>", "by up to 3 ms",
		"storm: 100,000 connections from 4 client processes to 4 launched servers",
		"Expectations", "lateness.p99", "Why connections could not be opened", "connection refused", "1.28 KiB", ">512 B<", "AMD EPYC 7B13", ">--jitter<",
		"split over 4", "--expect false-reaps==0", ">with a goodbye<", "living: answer, during", "living: raw answer, during", "15:09:26 UTC",
		">during</title>", ">tick 200 ms</li>", "silent: lateness of reaps",
	} {
		require.True(t, strings.Contains(got, want), want)
	}
	require.NotContains(t, got, "--bare")
	require.NotContains(t, got, `role="alert"`)
}

func TestEmptyResultSaysWhatIsMissing(t *testing.T) {
	got := render(t, &result.Result{})
	require.Empty(t, drawn.FindAllString(got, -1))
	for _, c := range charts(&result.Result{}) {
		require.NotEmpty(t, c.Desc)
		require.Contains(t, got, "<h2>"+c.Title+"</h2>\n<p>"+c.Desc+"</p>")
	}
	require.Contains(t, got, "no connection was opened")
	require.NotContains(t, got, "Expectations")
}

func TestInterruptedRunHasABanner(t *testing.T) {
	got := render(t, interrupted())
	require.Contains(t, got, "The run was interrupted after 40 s")
	require.Contains(t, got, "client 3 has died: signal: killed")
	require.Contains(t, got, "3 living connections were closed", "a failure outweighs an incomplete run")
}

func TestVerdictIsThatOfTheResult(t *testing.T) {
	const wished = "no living connection was closed, and 80,000 dead connections were reaped"
	for _, tt := range []struct {
		verdict  result.Verdict
		headline string
	}{
		{result.Verdict{Outcome: result.Passed, Remarks: []string{"a remark"}}, wished},
		{result.Verdict{Outcome: result.Failed, Causes: []string{"a", "b"}}, "a</h1>\n<ul><li>b</li></ul>"},
		{result.Verdict{Outcome: result.NotValid, Causes: []string{"c"}}, "c"},
	} {
		r := storm()
		r.Verdict = tt.verdict
		var b bytes.Buffer
		require.NoError(t, Write(&b, r))
		require.Contains(t, b.String(), `<header data-outcome="`+string(tt.verdict.Outcome)+`">`)
		require.Contains(t, b.String(), "<h1>"+tt.headline)
		require.Equal(t, len(tt.verdict.Remarks), strings.Count(b.String(), "<li>a remark</li>"))
	}
}

// TestCardsShowWhatFailed has faults that the first cards do not count.
func TestCardsShowWhatFailed(t *testing.T) {
	r := storm()
	r.Groups[0].Garbled, r.Groups[0].Swapped, r.Groups[0].Doubled, r.Groups[0].Skipped, r.Groups[0].Unanswered = 1, 2, 3, 4, 5
	r.Verdict = result.Verdict{Outcome: result.NotValid}
	var b bytes.Buffer
	require.NoError(t, Write(&b, r))
	require.NotContains(t, b.String(), `<div class="card" data-outcome="passed">`, "a result that is not valid has nothing good")
	var red []string
	for _, m := range regexp.MustCompile(`<div class="card" data-outcome="failed"><span>(.*?)</span><b>(.*?)</b>`).FindAllStringSubmatch(b.String(), -1) {
		red = append(red, m[1]+" "+m[2])
	}
	require.Equal(t, []string{"with a wrong answer 1", "without an answer 5", "swapped answers 2", "doubled answers 3", "skipped messages 4"}, red)
	require.Contains(t, render(t, r), "Kernel memory of the whole machine")
	require.Equal(t, 1, strings.Count(render(t, interrupted()), "client 3 has died: signal: killed"), "an error stands once")
}

func TestErrorsAreReturned(t *testing.T) {
	_, closed := io.Pipe()
	require.NoError(t, closed.Close())
	require.ErrorIs(t, Write(closed, storm()), io.ErrClosedPipe)
}

func TestLinearAxis(t *testing.T) {
	for _, tt := range []struct {
		greatest float64
		n        int
		want     []string
	}{
		{100_000, 5, []string{"0", "20,000", "40,000", "60,000", "80,000", "100,000"}},
		{1, 5, []string{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}},
		{0.3, 3, []string{"0.0", "0.1", "0.2", "0.3"}},
		{94, 8, []string{"0", "20", "40", "60", "80"}},
		{7, 7, []string{"0", "1", "2", "3", "4", "5", "6", "7"}},
		{10.1, 5, []string{"0", "5", "10"}},
		{0.0021, 5, []string{"0.0000", "0.0005", "0.0010", "0.0015", "0.0020"}},
		{1e19, 2, []string{"0", "5,000,000,000,000,000,000", "10,000,000,000,000,000,000"}},
	} {
		a := linear(tt.greatest, tt.n, plain, "/s")
		var got []string
		for _, k := range a.Ticks {
			got = append(got, k.Label)
		}
		require.Equal(t, tt.want, got, "%v in %d", tt.greatest, tt.n)
		require.InDelta(t, 1, a.at(tt.greatest), 1e-9)
		require.Equal(t, "/s", a.Unit)
	}
	a := linear(6*60, 6, seconds, " since the start")
	require.Equal(t, "min since the start", a.Unit)
	require.Equal(t, tick{120, "2"}, a.Ticks[2])
}

func TestLogarithmicAxis(t *testing.T) {
	for _, tt := range []struct {
		least, greatest time.Duration
		want            []string
	}{
		{time.Millisecond, time.Millisecond, []string{"1 ms", "2 ms"}},
		{150 * time.Microsecond, 9 * time.Millisecond, []string{"100 µs", "200 µs", "500 µs", "1 ms", "2 ms", "5 ms", "10 ms"}},
		{time.Microsecond, time.Hour, []string{"1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s", "16 min 40 s"}},
	} {
		a := logarithmic(float64(tt.least), float64(tt.greatest), durationText)
		var got []string
		for _, k := range a.Ticks {
			got = append(got, k.Label)
			require.InDelta(t, min(max(a.at(k.Value), 0), 1), a.at(k.Value), 1e-9, "%s is on the axis", k.Label)
		}
		require.Equal(t, tt.want, got)
		require.GreaterOrEqual(t, a.at(float64(tt.least)), -1e-9)
		require.LessOrEqual(t, a.at(float64(tt.greatest)), 1+1e-9)
	}
}

func TestLongRunIsThinnedAndKeepsItsPeaks(t *testing.T) {
	s := make([]point, 86_400)
	for i := range s {
		s[i] = point{x: float64(i), y: 5}
	}
	s[40_001].y, s[70_002].y = 900, 0
	thin := thinned(s)
	require.LessOrEqual(t, len(thin), 602)
	require.Contains(t, thin, point{x: 40_001, y: 900})
	require.Contains(t, thin, point{x: 70_002, y: 0})
	for i := range thin[1:] {
		require.LessOrEqual(t, thin[i].x, thin[i+1].x)
	}
}

// TestRateBetweenSamples includes a restarted process: its count begins at 0 again, and the rate is
// not negative.
func TestRateBetweenSamples(t *testing.T) {
	m := metric{"sent", func(s *result.Sample) float64 { return float64(s.Messages) }}
	q := quantity{units: plain, rate: true}
	samples := []result.Sample{{Messages: 0}, {At: 2 * time.Second, Messages: 10}, {At: 3 * time.Second, Messages: 4}}
	require.Equal(t, []point{{2, 5}, {3, 0}}, q.points(samples, m)[1:])
}

// TestTimeWithoutAnswersInterruptsTheLine: a line through it would claim that answers came.
func TestTimeWithoutAnswersInterruptsTheLine(t *testing.T) {
	r := &result.Result{Took: 10 * time.Second}
	for i := range 10 {
		s := result.Sample{At: time.Duration(i) * time.Second}
		if i < 3 || i > 6 {
			s.Latency = result.Quantiles{Count: 1, P50: time.Millisecond, P99: 2 * time.Millisecond, Max: 9 * time.Millisecond}
		}
		r.Samples = append(r.Samples, s)
	}
	c := charts(r)[1]
	require.Equal(t, "max: up to 9 ms at 0; p99: up to 2 ms at 0; p50: up to 1 ms at 0", c.Desc)
	require.Len(t, c.Lines, 3)
	for _, l := range c.Lines {
		require.Equal(t, 2, strings.Count(c.Path(l), "M"), "two parts: %s", c.Path(l))
		require.Equal(t, 4, strings.Count(c.Path(l), "L"), "of three points each: %s", c.Path(l))
	}
}

// TestLatenessIsDrawnUpToItsOutliers: one value would leave no room for all others.
func TestLatenessIsDrawnUpToItsOutliers(t *testing.T) {
	r := storm()
	all := lateness(r)
	require.NotContains(t, all.Desc, "not shown")
	last := all.Lines[0].points[len(all.Lines[0].points)-1]
	require.InDelta(t, 100, last.y, 1e-9, "all are reaped in the end")

	r.Groups[1].Lateness.Record(20 * time.Second)
	most := lateness(r)
	require.Contains(t, most.Desc, "max 20 s after the timeout; longer times than ")
	last = most.Lines[0].points[len(most.Lines[0].points)-1]
	require.InDelta(t, 100, last.y, 0.11)
	require.Less(t, last.y, 100.0)
	require.Less(t, last.x, 1.0)
}
