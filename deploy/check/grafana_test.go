package check

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// A dashboard has what the tests look at.
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
	if err := json.Unmarshal(read(t, "grafana/idlewheel.json"), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// expressions returns all expressions, by where they stand, with the variables filled in that are not in quotes.
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
	if d.SchemaVersion != 41 { // that of Grafana 12
		t.Errorf("its schema is %d", d.SchemaVersion)
	}
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	if variables["datasource"] != "datasource" || variables["instance"] != "query" {
		t.Errorf("its variables are %v", variables)
	}
	prometheus := source{Type: "prometheus", UID: "${datasource}"}
	type cell struct{ x, y int }
	cells, ids := map[cell]string{}, map[int]string{}
	for _, p := range d.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("%q and %q have the same id", p.Title, other)
		}
		ids[p.ID] = p.Title
		if p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q is beside the page", p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := cell{p.GridPos.X + x, p.GridPos.Y + y}
				if other, taken := cells[at]; taken && other != p.Title {
					t.Fatalf("%q covers %q", p.Title, other)
				}
				cells[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource == nil || *p.Datasource != prometheus || len(p.Targets) == 0 {
			t.Errorf("%q lacks a description, a unit, the data source or a query", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource != prometheus || !strings.Contains(target.Expr, `instance=~"$instance"`) {
				t.Errorf("%q does not ask the data source and servers that were chosen: %s", p.Title, target.Expr)
			}
		}
	}
}
