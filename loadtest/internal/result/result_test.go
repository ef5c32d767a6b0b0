package result

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// write writes a result to a file, and returns the text.
func write(t *testing.T, name string, r *Result) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	require.NoError(t, os.WriteFile(name, b.Bytes(), 0o600))
	return b.Bytes()
}

func sample() *Result {
	var d []time.Duration
	for ms := range 100 {
		d = append(d, time.Duration(ms+1)*time.Millisecond)
	}
	return &Result{
		Schema: Schema, Verb: "hold", Began: time.Unix(1_700_000_000, 0).UTC(), Took: time.Minute,
		Setup: Setup{Targets: []string{"a:1"}, Connections: 10, Clients: 1, Timeout: time.Second,
			Groups: []GroupSetup{{Name: "living", Connections: 15}},
			Flags:  map[string]string{"size": "32", "target": "a", "timeout": "1s", "ramp": "0s", "patience": "20s"}},
		Counts: Counts{Notes: []string{"a"}, Failures: Failures{"refused": 2}, Groups: []Group{{
			Name: "living", Behaviour: "heartbeat", Connections: 10, Opened: 10, Messages: 5, Answers: 4, Lost: 1, Reaped: 9,
			Early: 2, EarliestBy: 3, Lateness: *times(d...), Latency: map[string]*Latency{"hold": {Corrected: *times(d...), Raw: *times(d...)}},
		}}},
	}
}

func TestReadReturnsWhatWriteWrote(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.json")
	r := sample()
	text := write(t, name, r)
	got, err := Read(name)
	require.NoError(t, err)
	require.Equal(t, r.Groups[0].Lateness.h.Distribution(), got.Groups[0].Lateness.h.Distribution())
	require.Equal(t, 50*time.Millisecond, got.Groups[0].Lateness.Quantile(0.5).Round(time.Millisecond))
	require.Equal(t, string(text), string(write(t, name, got)))
}

func TestReadFindsResultInLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	r := sample()
	b := write(t, name, r)
	for _, around := range [][2]string{{"", "\nlast words {\n"}, {"  1s open  {10}\nall held\n\n", ""}, {"x\n", "{\n"}} {
		require.NoError(t, os.WriteFile(name, []byte(around[0]+string(b)+around[1]), 0o600))
		got, err := Read(name)
		require.NoError(t, err)
		require.Equal(t, r.Groups[0].Opened, got.Groups[0].Opened)
	}
	require.NoError(t, os.WriteFile(name, []byte("it said nothing\n"), 0o600))
	_, err := Read(name)
	require.ErrorContains(t, err, "not a result of this program")
}

func TestMerge(t *testing.T) {
	later := func(seconds int) *Result {
		r := sample()
		r.Began = r.Began.Add(time.Duration(seconds) * time.Second)
		return r
	}
	sum, err := Merge([]*Result{sample(), later(1), later(2)})
	require.NoError(t, err)
	g := sum.Groups[0]
	require.Equal(t, 30, sum.Setup.Connections)
	require.Equal(t, []string{"a:1"}, sum.Setup.Targets)
	require.Equal(t, uint64(30), g.Opened)
	require.Equal(t, uint64(27), g.Reaped)
	require.Equal(t, time.Duration(3), g.EarliestBy)
	require.Equal(t, uint64(300), g.Lateness.Count())
	require.Equal(t, uint64(300), g.Latency["hold"].Raw.Count())
	require.Equal(t, Failures{"refused": 6}, sum.Failures)
	require.Len(t, sum.Notes, 2)

	_, err = Merge([]*Result{sample(), sample()})
	require.ErrorContains(t, err, "twice")
	for want, change := range map[string]func(*Result){
		"a --ramp of": func(r *Result) { r.Setup.Flags["ramp"] = "1s" }, "a --patience of": func(r *Result) { r.Setup.Flags["patience"] = "1s" },
		"results of hold and of storm": func(r *Result) { r.Verb = "storm" }, "a merged result": func(r *Result) { r.Machines = []Machine{{}, {}} },
		"a --timeout of 1s and of 1h0m0s": func(r *Result) { r.Setup.Flags["timeout"] = "1h0m0s" }, "without a reaper": func(r *Result) { r.Setup.Bare = true },
		"a --size of 32 and of 64": func(r *Result) { r.Setup.Flags["size"] = "64" },
		"unlike groups living":     func(r *Result) { r.Setup.Groups = []GroupSetup{{Name: "living", Connections: 5, Size: 64}} },
	} {
		other := later(1)
		change(other)
		_, err = Merge([]*Result{sample(), other})
		require.ErrorContains(t, err, want)
	}
	other := later(1)
	other.Setup.Connections, other.Setup.Targets, other.Setup.Flags["target"] = 5, []string{"b:1"}, "b"
	other.Notes = []string{"b"}
	other.OwnDelay = map[string]*Histogram{"hold": times(time.Second)}
	sum, err = Merge([]*Result{sample(), other})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, sum.Notes[:2])
	require.Equal(t, uint64(1), sum.OwnDelay["hold"].Count())
	require.Equal(t, 30, sum.Setup.Groups[0].Connections)
}

func TestReadRefusesInvalidResult(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.json")
	for text, want := range map[string]string{
		"":              "the file is empty",
		" \n":           "the file is empty",
		"[]":            "not a result",
		`{"schema": 1}`: "its schema is 1: this program reads 2",
		`{"schema": 3}`: "its schema is 3",
		`{}`:            "its schema is 0",
		`{"schema": 2, "groups": [{"lateness": {"hdr_v2_us": "!"}}]}`: "histogram",
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		_, err := Read(name)
		require.ErrorContains(t, err, want, text)
	}
	_, err := Read(name + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(name, []byte(`{"schema": 2, "groups": [{"name": "a", "latency": {"x": null}}]}`), 0o600))
	r, err := Read(name)
	require.NoError(t, err)
	r.Total() // does not panic
}

func TestHistogramTakesAnyDuration(t *testing.T) {
	var none *Histogram
	require.Zero(t, none.Count())
	require.Zero(t, none.Quantile(0.5))
	var h Histogram
	require.Zero(t, h.Max())
	h.Record(-time.Second)
	h.Record(100 * time.Hour)
	require.Equal(t, uint64(2), h.Count())
	require.InDelta(t, time.Hour, h.Max(), float64(4*time.Second))
	h.Add(nil)
	require.Equal(t, uint64(2), h.Count())
}

func TestReasonsAreSortedByCount(t *testing.T) {
	require.Equal(t, []string{"c", "a", "b"}, Failures{"a": 1, "b": 1, "c": 5}.Reasons())
}

// fields returns the paths of all JSON fields of a type: [] follows an array, and {} an object with
// any keys.
func fields(of reflect.Type, path string) (paths []string) {
	switch of.Kind() {
	case reflect.Pointer:
		return fields(of.Elem(), path)
	case reflect.Slice:
		return fields(of.Elem(), path+"[]")
	case reflect.Map:
		return fields(of.Elem(), path+"{}")
	case reflect.Struct:
		if of == reflect.TypeFor[Histogram]() {
			if path != "groups[].connect" { // described once
				return []string{path}
			}
			of = reflect.TypeFor[written]()
		} else if reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]()) {
			return []string{path} // a time
		}
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			// An embedded field has no name.
			paths = append(paths, fields(field.Type, strings.Trim(path+"."+name, "."))...)
		}
		return paths
	}
	return []string{path}
}

func TestSchemaIsDescribed(t *testing.T) {
	text, err := os.ReadFile("SCHEMA.md")
	require.NoError(t, err)
	var described []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		described = append(described, m[1])
	}
	want := fields(reflect.TypeFor[Result](), "")
	slices.Sort(want)
	require.True(t, slices.IsSorted(described), "the table is sorted")
	require.Equal(t, want, described)
	require.Contains(t, string(text), "version 2")
}
