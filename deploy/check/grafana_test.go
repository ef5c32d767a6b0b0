package check

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr       string
		Datasource source
	}
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	require.NoError(t, json.Unmarshal(read(t, "grafana/idlewheel.json"), &d))
	return d
}

// expressions returns all expressions by their place, with unquoted variables filled in.
func (d dashboard) expressions() map[string]string {
	all := map[string]string{}
	fill := strings.NewReplacer("$__rate_interval", "1m")
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
	d := readDashboard(t)
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
	type cell struct{ x, y int }
	cells, ids := map[cell]string{}, map[int]string{}
	for _, p := range d.Panels {
		other, taken := ids[p.ID]
		assert.False(t, taken, "%q and %q have the same id", p.Title, other)
		ids[p.ID] = p.Title
		assert.False(t, p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24, "%q is beside the page", p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := cell{p.GridPos.X + x, p.GridPos.Y + y}
				other, taken := cells[at]
				require.False(t, taken && other != p.Title, "%q covers %q", p.Title, other)
				cells[at] = p.Title
			}
		}
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

// TestPanelsHaveTheUnitOfWhatTheyShow derives units from the names of metrics.
func TestPanelsHaveTheUnitOfWhatTheyShow(t *testing.T) {
	fill := strings.NewReplacer("$__rate_interval", "1m")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			tree, err := parser.ParseExpr(fill.Replace(target.Expr))
			if err != nil {
				t.Errorf("%q: %v", p.Title, err)
				continue
			}
			want, unit := unitOf(tree), p.FieldConfig.Defaults.Unit
			// A table has units of columns.
			if want == perSecond && strings.HasSuffix(unit, "ps") || p.Type == "table" {
				continue
			}
			assert.Equal(t, want, unit, "%q is in %s, and shows %s: %s", p.Title, unit, want, target.Expr)
		}
	}
}

// TestCountersAreNotShownAsTheyAre checks that each counter is the argument of rate or increase.
func TestCountersAreNotShownAsTheyAre(t *testing.T) {
	for where, expr := range readDashboard(t).expressions() {
		tree, err := parser.ParseExpr(expr)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		parser.Inspect(tree, func(node parser.Node, above []parser.Node) error {
			s, is := node.(*parser.VectorSelector)
			if !is {
				return nil
			}
			under := slices.ContainsFunc(above, func(n parser.Node) bool {
				call, is := n.(*parser.Call)
				return is && slices.Contains([]string{"rate", "increase"}, call.Func.Name)
			})
			grows := counter.MatchString(s.Name)
			assert.Equal(t, under, grows, "%s: %s is a counter: %v, and under rate or increase: %v", where, s.Name, grows, under)
			return nil
		})
	}
}

var counter = regexp.MustCompile(`_(total|bucket|sum|count)$`)

// perSecond stands for all units of a number per second: cps, ops and so on.
const perSecond = "a rate"

// unitOf returns the unit of Grafana for an expression.
func unitOf(e parser.Expr) string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return unitOf(e.Expr)
	case *parser.AggregateExpr:
		return unitOf(e.Expr)
	case *parser.MatrixSelector:
		return unitOf(e.VectorSelector)
	case *parser.VectorSelector:
		switch name := strings.TrimSuffix(strings.TrimSuffix(e.Name, "_total"), "_sum"); {
		case strings.HasSuffix(name, "_seconds"):
			return "s"
		case strings.HasSuffix(name, "_ratio"):
			return "percentunit"
		case strings.HasSuffix(name, "_bytes"):
			return "bytes"
		}
	case *parser.Call:
		switch of := unitOf(e.Args[len(e.Args)-1]); {
		case e.Func.Name == "histogram_quantile":
			return "s" // all our histograms are of times
		case e.Func.Name == "rate" && of == "short":
			return perSecond
		case e.Func.Name == "rate" && of == "s":
			return "short" // seconds per second: a number of simultaneous things
		default:
			return of
		}
	case *parser.BinaryExpr:
		left, right := unitOf(e.LHS), unitOf(e.RHS)
		switch {
		case e.Op != parser.DIV:
			return left
		case left == right:
			return "percentunit"
		case right == perSecond: // seconds per second divided by a number per second
			return "s"
		}
	}
	return "short"
}
