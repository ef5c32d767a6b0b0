package check

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func rules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, "prometheus/alerts.yaml"), false, model.UTF8Validation)
	for _, err := range errs {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestAlertsHaveSummaries(t *testing.T) {
	for _, rule := range rules(t) {
		assert.False(t, rule.Alert == "" || rule.Annotations["summary"] == "" || !slices.Contains([]string{"page", "ticket"}, rule.Labels["severity"]),
			"%+v: set alert, summary and severity", rule)
	}
}

// TestRunbooksExist checks that each alert leads to its heading in docs/night.md.
func TestRunbooksExist(t *testing.T) {
	b := read(t, "../docs/night.md")
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ +(.+?) *$`).FindAllStringSubmatch(string(b), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	for _, rule := range rules(t) {
		anchor, url := strings.ToLower(rule.Alert), rule.Annotations["runbook_url"]
		assert.True(t, strings.HasSuffix(url, "/docs/night.md#"+anchor), "%s: its runbook is %s", rule.Alert, url)
		assert.True(t, anchors[anchor], "docs/night.md has no heading for #%s", anchor)
	}
}

// An alertTest is one test of alerts_test.yaml, with the fields of promtool that the file uses.
type alertTest struct {
	Name        string
	Interval    model.Duration
	InputSeries []struct{ Series, Values string } `json:"input_series"`
	Wants       []struct {
		EvalTime  model.Duration `json:"eval_time"`
		Alertname string
		Alerts    []wantAlert `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

type wantAlert struct {
	Labels      map[string]string `json:"exp_labels"`
	Annotations map[string]string `json:"exp_annotations"`
}

// alertTests is alerts_test.yaml.
type alertTests struct {
	RuleFiles []string       `json:"rule_files"`
	Interval  model.Duration `json:"evaluation_interval"`
	Tests     []alertTest
}

// TestAlertsFireWhenTheyShould does the same as `promtool test rules`. promtool depends on the
// clients of all clouds, so it is not used.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	var file alertTests
	require.NoError(t, yaml.UnmarshalStrict(read(t, "prometheus/alerts_test.yaml"), &file))
	engine, tested := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: 10 * time.Second}), map[string]bool{}
	all := rules(t)
	for _, test := range file.Tests {
		for _, want := range test.Wants {
			tested[want.Alertname] = tested[want.Alertname] || len(want.Alerts) > 0
			assert.True(t, slices.ContainsFunc(all, func(r rulefmt.Rule) bool { return r.Alert == want.Alertname }),
				"there is no alert %s", want.Alertname)
		}
		t.Run(test.Name, func(t *testing.T) {
			for _, rule := range all {
				failure := test.fails(t, engine, rule, time.Duration(file.Interval))
				assert.Empty(t, failure, failure)
			}
		})
	}
	for _, rule := range all {
		assert.True(t, tested[rule.Alert], "no test lets %s fire", rule.Alert)
	}
}

// fails runs the parts of a test that are about a rule, and describes the first failure.
func (test alertTest) fails(t *testing.T, engine *promql.Engine, rule rulefmt.Rule, interval time.Duration) string {
	t.Helper()
	var data memory
	for _, in := range test.InputSeries {
		require.NoError(t, data.add(in.Series+" "+in.Values, time.Duration(test.Interval)), in.Series)
	}
	for _, want := range test.Wants {
		if want.Alertname != rule.Alert {
			continue
		}
		got, err := firing(t.Context(), engine, data, rule, interval, time.Duration(want.EvalTime))
		require.NoError(t, err)
		for i := range want.Alerts {
			want.Alerts[i].Labels["alertname"] = want.Alertname
		}
		if g, w := describe(got), describe(want.Alerts); !slices.Equal(g, w) {
			return fmt.Sprintf("%s after %v:\n got %s\nwant %s", want.Alertname, want.EvalTime, strings.Join(g, "\n     "), strings.Join(w, "\n     "))
		}
	}
	return ""
}

// describe returns one line for each alert, sorted.
func describe(alerts []wantAlert) (lines []string) {
	for _, a := range alerts {
		lines = append(lines, fmt.Sprint(a.Labels, a.Annotations))
	}
	slices.Sort(lines)
	return lines
}

// firing returns the alerts of a rule that fire after some time, if the rule is evaluated once per
// interval from 0 on.
func firing(
	ctx context.Context, engine *promql.Engine, data memory, rule rulefmt.Rule, interval, at time.Duration,
) (alerts []wantAlert, err error) {
	since := map[uint64]time.Duration{} // by labels, for alerts that hold
	for now := time.Duration(0); now <= at; now += interval {
		vector, err := evaluate(ctx, engine, data, rule.Expr, time.UnixMilli(0).Add(now))
		if err != nil {
			return nil, err
		}
		holds := map[uint64]time.Duration{}
		alerts = nil
		for _, sample := range vector {
			id := sample.Metric.Hash()
			holds[id] = now
			if began, held := since[id]; held {
				holds[id] = began
			}
			if now-holds[id] < time.Duration(rule.For) {
				continue
			}
			alert, err := expand(ctx, rule, sample)
			if err != nil {
				return nil, err
			}
			alerts = append(alerts, alert)
		}
		since = holds
	}
	return alerts, nil
}

func evaluate(ctx context.Context, engine *promql.Engine, data memory, expr string, at time.Time) (promql.Vector, error) {
	query, err := engine.NewInstantQuery(ctx, data, nil, expr, at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	return query.Exec(ctx).Vector()
}

// expand makes an alert from a sample, as Prometheus does.
func expand(ctx context.Context, rule rulefmt.Rule, sample promql.Sample) (wantAlert, error) {
	metric := map[string]string{}
	sample.Metric.Range(func(l labels.Label) {
		if l.Name != labels.MetricName {
			metric[l.Name] = l.Value
		}
	})
	alert := wantAlert{Labels: maps.Clone(metric), Annotations: map[string]string{}}
	maps.Copy(alert.Labels, rule.Labels)
	alert.Labels["alertname"] = rule.Alert
	const variables = "{{$labels := .Labels}}{{$value := .Value}}"
	for name, text := range rule.Annotations {
		data := template.AlertTemplateData(metric, nil, "", sample)
		said, err := template.NewTemplateExpander(ctx, variables+text, name, data, model.Time(sample.T), nil, nil, nil).Expand()
		if err != nil {
			return alert, err
		}
		alert.Annotations[name] = said
	}
	return alert, nil
}

// parse parses an expression and returns its selectors.
func parse(expr string) (selectors []*parser.VectorSelector, err error) {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			selectors = append(selectors, s)
		}
		return nil
	})
	return selectors, nil
}

// A dashboard has the fields that the tests check.
type dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               *source
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr       string
		Datasource source
	}
}

type source struct{ Type, UID string }

// fill fills in the variables without quotes.
var fill = strings.NewReplacer("$__rate_interval", "1m")

// expressions returns all expressions by their place, with unquoted variables filled in.
func (d dashboard) expressions() map[string]string {
	all := map[string]string{}
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			all[fmt.Sprintf("panel %q, query %c", p.Title, 'A'+i)] = fill.Replace(target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		all["annotation "+a.Name] = fill.Replace(a.Expr)
	}
	return all
}

func TestTheDashboardIsWhole(t *testing.T) {
	d := decode[dashboard](t, "grafana/idlewheel.json")
	if d.SchemaVersion != 41 { // the schema of Grafana 12
		t.Errorf("its schema is %d", d.SchemaVersion)
	}
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	assert.False(t, variables["datasource"] != "datasource" || variables["instance"] != "query",
		"its variables are %v", variables)
	prometheus := source{Type: "prometheus", UID: "${datasource}"}
	ids := map[int]string{}
	for _, p := range d.Panels {
		other, taken := ids[p.ID]
		assert.False(t, taken, "%q and %q have the same id", p.Title, other)
		ids[p.ID] = p.Title
		if p.Type == "row" {
			continue
		}
		assert.False(t, p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource == nil || *p.Datasource != prometheus || len(p.Targets) == 0,
			"%q lacks a description, a unit, the data source or a query", p.Title)
		for _, target := range p.Targets {
			assert.False(t, target.Datasource != prometheus || !strings.Contains(target.Expr, `instance=~"$instance"`),
				"%q does not ask the data source and servers that were chosen: %s", p.Title, target.Expr)
		}
	}
}
