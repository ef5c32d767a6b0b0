package check

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	token    = "0123456789abcdef0123456789abcdef"
	patience = 20 * time.Second
)

var adminLine = regexp.MustCompile(`admin on (http://[0-9.:]+/)`)

// serve starts the server with args until the test ends, with free ports of this machine and with
// existing files. It returns the address of the admin listener.
func serve(t *testing.T, args []string, limits string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	limits, err := filepath.Abs(limits)
	require.NoError(t, err)
	instead := map[string]string{"addr": "127.0.0.1:0", "admin": "127.0.0.1:0", "admin-token-file": file, "limits": limits}
	args = slices.Clone(args)
	for i := range args {
		name, _, joined := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		value, replaced := instead[name]
		switch {
		case !replaced:
		case joined:
			args[i] = "--" + name + "=" + value
		default:
			args[i+1] = value
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	cmd := exec.CommandContext(ctx, must(t, echoHeartbeat), args...)
	said, stdout, err := os.Pipe()
	require.NoError(t, err)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &complaints
	err = cmd.Start()
	_ = stdout.Close()
	require.NoError(t, err)
	t.Cleanup(func() {
		defer cancel()
		defer said.Close()
		go io.Copy(io.Discard, said) //nolint:errcheck // until it is closed
		// The second ends the drain; two equal signals may be delivered as one.
		for _, stop := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
			_ = cmd.Process.Signal(stop)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it did not stop well: %v\n%s", err, complaints.String())
		}
	})
	_ = said.SetReadDeadline(time.Now().Add(patience))
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if m := adminLine.FindStringSubmatch(lines.Text()); m != nil {
			_ = said.SetReadDeadline(time.Time{})
			return m[1]
		}
	}
	t.Fatalf("echo-heartbeat %s does not say where its admin listener is", strings.Join(args, " "))
	return ""
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// TestServersStartAsDeployed starts the server as the pods and the unit do, and makes the requests
// of probes and Prometheus.
func TestServersStartAsDeployed(t *testing.T) {
	pod := deployment(t).Spec.Template
	for name, start := range map[string]struct {
		args   []string
		limits string
	}{
		"pod":  {pod.Spec.Containers[0].Args, "../kubernetes/limits"},
		"unit": {strings.Fields(unit(t)["ExecStart"])[1:], "../systemd/limits"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := serve(t, start.args, start.limits)
			for _, path := range []string{"livez", "readyz", strings.TrimPrefix(pod.Annotations["prometheus.io/path"], "/")} {
				status, body := get(t, admin+path)
				assert.Equal(t, http.StatusOK, status, "GET /%s: %d %s", path, status, body)
			}
		})
	}
}

// A metric has the values of each label of a metric in an exposition.
type metric map[string]map[string]bool

var (
	typeLine   = regexp.MustCompile(`^# TYPE (\S+) (\S+)`)
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)
	labelPair  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// exposition returns the names of all series that a server exposes.
func exposition(t *testing.T) map[string]metric {
	t.Helper()
	pod := deployment(t).Spec.Template
	path := strings.TrimPrefix(pod.Annotations["prometheus.io/path"], "/")
	_, text := get(t, serve(t, pod.Spec.Containers[0].Args, "../kubernetes/limits")+path)
	all := map[string]metric{}
	for line := range strings.Lines(text) {
		if m := typeLine.FindStringSubmatch(line); m != nil {
			names := []string{m[1]}
			switch m[2] {
			case "histogram":
				names = []string{m[1] + "_bucket", m[1] + "_sum", m[1] + "_count"}
			case "summary":
				names = []string{m[1], m[1] + "_sum", m[1] + "_count"}
			}
			for _, name := range names {
				all[name] = metric{}
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil || all[m[1]] == nil {
			continue
		}
		for _, l := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if all[m[1]][l[1]] == nil {
				all[m[1]][l[1]] = map[string]bool{}
			}
			all[m[1]][l[1]][l[2]] = true
		}
	}
	return all
}

// TestMetricsAreThoseOfTheServer checks that the dashboard, the alerts and their tests select
// metrics that a server exposes, and that the dashboard shows each metric of idlewheel.
func TestMetricsAreThoseOfTheServer(t *testing.T) {
	exposed := exposition(t)
	dashboard := decode[dashboard](t, "grafana/idlewheel.json").expressions()
	all := maps.Clone(dashboard)
	for _, rule := range rules(t) {
		all["alert "+rule.Alert] = rule.Expr
	}
	used := map[string]bool{}
	for where, expr := range all {
		selectors, err := parse(expr)
		assert.NoError(t, err, where)
		for _, s := range selectors {
			if _, shown := dashboard[where]; shown {
				used[s.Name] = true
			}
			if s.Name == "up" { // a metric of Prometheus
				continue
			}
			m, found := exposed[s.Name]
			if !found {
				t.Errorf("%s: there is no metric %s", where, s.Name)
				continue
			}
			for _, l := range s.LabelMatchers {
				problem := m.lacks(l)
				assert.Empty(t, problem, "%s: %s%s", where, s.Name, problem)
			}
		}
	}
	for name := range exposed {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		assert.False(t, strings.HasPrefix(name, "idlewheel_") && !used[name] && !used[base+"_bucket"],
			"the dashboard does not show %s", name)
	}
}

// lacks names a label or value of a matcher that the metric does not have. It accepts any value for
// a metric without samples, and labels that Prometheus adds to all targets.
func (m metric) lacks(l *labels.Matcher) string {
	if slices.Contains([]string{labels.MetricName, "job", "instance"}, l.Name) || len(m) == 0 {
		return ""
	}
	values, found := m[l.Name]
	switch {
	case !found:
		return " has no label " + l.Name
	case l.Name == "state" && l.Value == "unknown": // only while a loop does not answer
		return ""
	case l.Type == labels.MatchEqual && !values[l.Value]:
		return " is never " + l.String()
	case l.Type == labels.MatchRegexp || l.Type == labels.MatchNotRegexp:
		for word := range strings.SplitSeq(l.Value, "|") {
			if !values[word] {
				return " is never " + l.Name + "=" + word
			}
		}
	}
	return ""
}
