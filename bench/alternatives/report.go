package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A record has the results of all rounds.
type record struct {
	options
	machine [][2]string
	keepers map[string][]metrics
	servers map[string][]metrics
}

func newRecord(o options) *record {
	return &record{
		options: o, machine: thisMachine(), keepers: map[string][]metrics{}, servers: map[string][]metrics{},
	}
}

// measure takes all subjects in turn in each round, so that other load of the machine affects all
// alike.
func (r *record) measure(ctx context.Context, o options, progress io.Writer) error {
	one := func(round int, tcp bool, name string, into map[string][]metrics) error {
		began := time.Now()
		m, err := do(ctx, newJob(o.quick, tcp, name))
		if err != nil {
			return err
		}
		into[name] = append(into[name], m)
		fmt.Fprintf(progress, "round %d/%d, %.1f s: %s\n", round, o.runs, time.Since(began).Seconds(), name)
		return nil
	}
	for round := range o.runs {
		for _, k := range keeperKinds() {
			if err := one(round+1, false, k.name, r.keepers); err != nil {
				return err
			}
		}
		for _, k := range serverKinds() {
			if err := one(round+1, true, k.name, r.servers); err != nil {
				return err
			}
		}
	}
	return nil
}

// A column is one metric in a table.
type column struct {
	title  string
	metric string
	ratio  bool // followed by the ratio to the first row that has it
}

func (r *record) markdown() string {
	var b strings.Builder
	b.WriteString("# Alternatives compared\n\n")
	if r.quick {
		b.WriteString("**A quick run. It shows that everything works. Its figures have no meaning.**\n\n")
	}
	fmt.Fprintf(&b, "%s, `go -C bench/alternatives run . --runs %d`. [docs/alternatives.md](../../docs/alternatives.md) explains the results.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), r.runs)
	b.WriteString("| machine | |\n|---|---|\n")
	for _, row := range r.machine {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	rounds := fmt.Sprintf("%d rounds", r.runs)
	if r.runs == 1 {
		rounds = "1 round"
	}
	fmt.Fprintf(&b, "\nMedians of %s, smallest and largest in brackets. Each measurement is a process of its own; a round takes all "+
		"subjects in turn. × is the median divided by the median of the first row. Early: found before the timeout had passed, "+
		"maximum of all rounds.\n", rounds)

	memory, tcp := newJob(r.quick, false, ""), newJob(r.quick, true, "")
	fmt.Fprintf(&b, "\n## In memory, %s connections\n\n", thousands(memory.N))
	b.WriteString("Idle detection without sockets: one goroutine represents the event loop.\n\n")
	var rows [][2]string
	for _, k := range keeperKinds() {
		rows = append(rows, [2]string{k.name, k.note})
	}
	table(&b, rows, r.keepers, []column{
		{"message, ns", "touch_ns", true}, {"bytes per connection", "bytes", true}, {"silent: CPU ms per s", "hold_ms_per_s", false},
		{"heartbeat with deferred work: CPU ns", "heartbeat_ns", false},
		{"late p50 ms", "late_p50_ms", false}, {"p99", "late_p99_ms", false}, {"latest", "late_max_ms", false},
		{"early", "early", false}, {"never", "lost", false},
	})
	fmt.Fprintf(&b, "\nmessage: random connections at full speed. silent: all held for %v with a timeout of a minute. heartbeat: one "+
		"per connection and second for %v. Both are processor time of the whole process, including the harness and "+
		"garbage collections. late: then all become silent; "+
		"timeout %v.\n", memory.Hold, memory.Heartbeat, memory.Timeout)
	notes(&b, rows)

	fmt.Fprintf(&b, "\n## Servers on loopback, %s connections\n\n", thousands(tcp.N))
	b.WriteString("Echo servers with real TCP connections. The clients are another process, on the same cores.\n\n")
	rows = nil
	for _, k := range serverKinds() {
		rows = append(rows, [2]string{k.name, k.note})
	}
	table(&b, rows, r.servers, []column{
		{"heap and stacks, bytes per connection", "bytes", true}, {"resident, bytes per connection", "resident", true},
		{"silent: CPU ms per s", "hold_ms_per_s", false}, {"echo: CPU µs", "echo_us", true},
		{"late p50 ms", "late_p50_ms", false}, {"p99", "late_p99_ms", false}, {"latest", "late_max_ms", false},
		{"early", "early", false},
	})
	fmt.Fprintf(&b, "\nHeap and stacks: runtime.MemStats after a collection, with connections that have sent and received one byte. Resident: "+
		"memory of the process. Neither includes kernel buffers. silent: all held for %v. echo: each sends a byte once a second for %v. "+
		"late: then all become silent; from the last byte sent to the end seen by the client, less the timeout of %v.\n",
		tcp.Hold, tcp.Heartbeat, tcp.Timeout)
	notes(&b, rows)
	return b.String()
}

func notes(b *strings.Builder, rows [][2]string) {
	b.WriteString("\n| | usage |\n|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(b, "| %s | %s |\n", row[0], row[1])
	}
}

func table(b *strings.Builder, rows [][2]string, data map[string][]metrics, columns []column) {
	b.WriteString("| |")
	var rule strings.Builder
	rule.WriteString("\n|---|")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.title)
		rule.WriteString("---:|")
		if c.ratio {
			b.WriteString(" × |")
			rule.WriteString("---:|")
		}
	}
	b.WriteString(rule.String() + "\n")
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |", row[0])
		for _, c := range columns {
			values := valuesOf(data[row[0]], c.metric)
			fmt.Fprintf(b, " %s |", cell(values, c.metric))
			if c.ratio {
				first := valuesOf(data[rows[0][0]], c.metric)
				fmt.Fprintf(b, " %s |", ratio(values, first))
			}
		}
		b.WriteString("\n")
	}
}

func valuesOf(runs []metrics, metric string) (values []float64) {
	var reaped bool
	for _, m := range runs {
		if _, ok := m["late_p50_ms"]; ok {
			reaped = true
		}
		if v, ok := m[metric]; ok {
			values = append(values, v)
		}
	}
	if metric == "early" && reaped && len(values) == 0 {
		return []float64{0}
	}
	slices.Sort(values)
	return values
}

// median returns the middle of sorted values.
func median(values []float64) float64 {
	n := len(values)
	if n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[n/2]
}

func cell(values []float64, metric string) string {
	switch {
	case len(values) == 0:
		return "-"
	case metric == "early" || metric == "lost": // the worst counts
		return thousands(int(values[len(values)-1]))
	case len(values) == 1:
		return number(values[0])
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(values)), number(values[0]), number(values[len(values)-1]))
}

func ratio(values, first []float64) string {
	if len(values) == 0 || len(first) == 0 || median(first) <= 0 {
		return "-"
	}
	return number(median(values) / median(first))
}

// number shows three digits.
func number(x float64) string {
	a := max(x, -x)
	switch {
	case a >= 99.95:
		return thousands(int(x + 0.5))
	case a >= 9.995:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// thisMachine describes this machine.
func thisMachine() [][2]string {
	return [][2]string{
		{"processor", fmt.Sprintf("%s, %d cores, GOMAXPROCS %d",
			field("/proc/cpuinfo", "model name", ":"), runtime.NumCPU(), runtime.GOMAXPROCS(0))},
		{"memory", field("/proc/meminfo", "MemTotal", ":")},
		{"system", strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`) + ", " + runtime.GOOS + "/" + runtime.GOARCH + " " +
			firstWords("/proc/sys/kernel/osrelease", 1)},
		{"Go", runtime.Version()},
		{"load averages before the start", firstWords("/proc/loadavg", 3)},
	}
}

const unknown = "unknown"

// field returns the value of the first line "key separator value" of a file.
func field(path, key, separator string) string {
	f, err := os.Open(path)
	if err != nil {
		return unknown
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		k, v, ok := strings.Cut(lines.Text(), separator)
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return unknown
}

func firstWords(path string, n int) string {
	b, err := os.ReadFile(path)
	words := strings.Fields(string(b))
	if err != nil || len(words) < n {
		return unknown
	}
	return strings.Join(words[:n], " ")
}
