package check

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	// Keeps the module with the schema in go.mod; the package is empty.
	_ "k8s.io/kubernetes/pkg/generated"
	"sigs.k8s.io/yaml"
)

// folder has the programs that are built for the tests.
var folder string

func TestMain(m *testing.M) {
	// go test only detects changes in the module of a test, and would report "ok (cached)" after a
	// change of deploy/ or of the server. It caches no result of a test without a log of the files
	// that were read.
	flag.Parse()
	_ = flag.Set("test.testlogfile", "")
	var err error
	if folder, err = os.MkdirTemp("", "idlewheel-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// The programs that the files of deploy/ run are built as in the Containerfile.
var (
	echoHeartbeat = sync.OnceValues(func() (string, error) { return build("./cmd/echo-heartbeat") })
	loadtest      = sync.OnceValues(func() (string, error) { return build("./loadtest") })
)

func build(pkg string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	name := filepath.Join(folder, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", name, pkg)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return name, nil
}

// must returns the value of one of the above.
func must(t *testing.T, built func() (string, error)) string {
	t.Helper()
	name, err := built()
	require.NoError(t, err)
	return name
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	require.NoError(t, err)
	return b
}

// decode reads a file of deploy/ with YAML or JSON.
func decode[T any](t *testing.T, name string) (object T) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(read(t, name), &object), name)
	return object
}

// output runs a command and returns what it prints; it fails the test if the command fails.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

var flagInHelp = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z0-9-]+)`)

// wantFlags checks that the verb at the beginning of args has all the flags in args.
func wantFlags(t *testing.T, program string, args []string) {
	t.Helper()
	require.False(t, len(args) == 0 || strings.HasPrefix(args[0], "-"), "%q do not begin with a verb", args)
	known := map[string]bool{}
	for _, m := range flagInHelp.FindAllStringSubmatch(output(t, program, args[0], "--help"), -1) {
		known[m[1]] = true
	}
	for _, arg := range args[1:] {
		if name, isFlag := strings.CutPrefix(arg, "--"); isFlag {
			name, _, _ = strings.Cut(name, "=")
			assert.True(t, known[name], "%s %s has no flag --%s", filepath.Base(program), args[0], name)
		}
	}
}

// valueOf returns the value of a flag in args, given as --name=value or as --name value.
func valueOf(args []string, name string) (string, bool) {
	for i, arg := range args {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return value, true
		}
		if arg == "--"+name && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

// durationOf returns the value of a flag that is a duration, 0 if it is not given.
func durationOf(t *testing.T, args []string, name string) time.Duration {
	t.Helper()
	value, found := valueOf(args, name)
	if !found {
		return 0
	}
	d, err := time.ParseDuration(value)
	require.NoError(t, err, "--%s", name)
	return d
}

// numberOf returns the value of a flag that is a number.
func numberOf(t *testing.T, args []string, name string) int {
	t.Helper()
	value, _ := valueOf(args, name)
	n, err := strconv.Atoi(value)
	require.NoError(t, err, "--%s", name)
	return n
}

// limitIn returns a limit in a file for --limits.
func limitIn(t *testing.T, name, limit string) string {
	t.Helper()
	for line := range strings.Lines(string(read(t, name))) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == limit {
			return words[1]
		}
	}
	t.Fatalf("%s has no %s", name, limit)
	return ""
}

// A memory is a storage for PromQL with series that begin at time 0.
type memory []promql.Series

// add adds a series in the notation of promtool, such as `up{job="a"} 1x4 0x3`.
func (m *memory) add(text string, interval time.Duration) error {
	metric, values, err := parser.ParseSeriesDesc(text)
	if err != nil {
		return err
	}
	series := promql.Series{Metric: metric}
	for i, v := range values {
		if !v.Omitted {
			series.Floats = append(series.Floats, promql.FPoint{T: int64(i) * interval.Milliseconds(), F: v.Value})
		}
	}
	*m = append(*m, series)
	return nil
}

// Querier implements storage.Queryable.
func (m memory) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := &seriesSet{SeriesSet: storage.EmptySeriesSet(), next: -1}
			for _, series := range m {
				if !slices.ContainsFunc(matchers, func(l *labels.Matcher) bool { return !l.Matches(series.Metric.Get(l.Name)) }) {
					found.series = append(found.series, series)
				}
			}
			return found
		},
	}, nil
}

// A seriesSet iterates over series. The empty set, which it embeds, has no error and no warning.
type seriesSet struct {
	storage.SeriesSet
	series []promql.Series
	next   int
}

func (s *seriesSet) Next() bool         { s.next++; return s.next < len(s.series) }
func (s *seriesSet) At() storage.Series { return promql.NewStorageSeries(s.series[s.next]) }

// writeSchemas makes a JSON schema for each kind of Kubernetes from the OpenAPI document in its
// module, and returns the folder. The version of k8s.io/kubernetes in go.mod is the oldest release
// that the manifests support.
func writeSchemas(t *testing.T) string {
	t.Helper()
	module := strings.TrimSpace(output(t, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
	b, err := os.ReadFile(filepath.Join(module, "api", "openapi-spec", "swagger.json"))
	require.NoError(t, err)
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	require.NoError(t, json.Unmarshal(b, &document))
	dir := t.TempDir()
	write := func(name string, schema any) {
		b, err := json.Marshal(schema)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	for name, definition := range document.Definitions {
		if definition["format"] == "int-or-string" {
			definition["type"] = []string{"integer", "string"}
			delete(definition, "format")
		}
		if _, more := definition["additionalProperties"]; definition["properties"] != nil && !more {
			definition["additionalProperties"] = false // an unknown field is a mistake
		}
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			kind := kind.(map[string]any)
			of := []string{kind["kind"].(string)}
			// kubeconform uses these names.
			if group, _, _ := strings.Cut(kind["group"].(string), "."); group != "" {
				of = append(of, group)
			}
			of = append(of, kind["version"].(string))
			write(strings.ToLower(strings.Join(of, "-"))+".json", map[string]any{"$ref": "definitions.json#/definitions/" + name})
		}
	}
	write("definitions.json", map[string]any{"definitions": document.Definitions})
	return dir
}
