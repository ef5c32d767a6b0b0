package rounds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type letter byte

func (l letter) String() string { return string(rune(l)) }

func TestSubjectsTakeTurns(t *testing.T) {
	var order strings.Builder
	results, err := Take(Options{Runs: 3}, []letter("abc"), func(l letter) (Figures, error) {
		order.WriteByte(byte(l))
		return Figures{"n": float64(order.Len())}, nil
	})
	if err != nil || order.String() != "abcbcacab" {
		t.Errorf("order %s, error %v; want abcbcacab", &order, err)
	}
	if got := fmt.Sprint([]float64(results["a"]["n"])); got != "[1 6 8]" {
		t.Errorf("the values of a are %s, want [1 6 8]", got)
	}
}

func TestAFailureEndsTheComparison(t *testing.T) {
	_, err := Take(Options{Runs: 1}, []letter("a"), func(letter) (Figures, error) { return nil, errors.New("stuck") })
	if err == nil || err.Error() != "a: stuck" {
		t.Errorf("error %v, want a: stuck", err)
	}
}

func TestValues(t *testing.T) {
	for _, tc := range []struct {
		values      Values
		text, ratio string // to 10 and 20
	}{
		{nil, "-", "-"},
		{Values{3}, "3.00", "×0.20"},
		{Values{0}, "0", "×0"},
		{Values{15, 15}, "15.0", "≈ ×1.00"},
		{Values{15, 30, 99}, "30.0 (15.0–99.0)", "≈ ×2.00"},
		{Values{1000, 2000}, "1,500 (1,000–2,000)", "×100"},
		{Values{-2000, -1000}, "-1,500 (-2,000–-1,000)", "×-100"},
	} {
		if got := tc.values.String(); got != tc.text {
			t.Errorf("%v is %q, want %q", []float64(tc.values), got, tc.text)
		}
		if got := tc.values.Ratio(Values{10, 20}); got != tc.ratio {
			t.Errorf("the ratio of %v is %q, want %q", []float64(tc.values), got, tc.ratio)
		}
	}
}

func TestTable(t *testing.T) {
	got := Table([]letter("x"), []letter("ab"), func(r, c letter) string { return r.String() + c.String() })
	if want := "|  | a | b |\n|---|---:|---:|\n| x | xa | xb |\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSettingTellsHowToRepeatTheFigures(t *testing.T) {
	got := Options{Runs: 7}.Setting("go run .")
	if !strings.Contains(got, "`go run . --runs 7`, commit ") {
		t.Errorf("got %q", got)
	}
	if got := (Options{Quick: true}).Setting("go run ."); !strings.Contains(got, "no meaning") {
		t.Errorf("a quick run says %q", got)
	}
}

func TestWriteReplacesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table.md")
	for _, text := range []string{"long text", "short"} {
		if err := write(path, text); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != text {
			t.Errorf("the file has %q (%v), want %q", got, err, text)
		}
	}
}
