package docs_test

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A world has the packages that documents may name.
type world map[string]*types.Package

func readWorld(t testing.TB) world {
	t.Helper()
	paths := []string{imports["gnet"]}
	for name, path := range imports {
		if path == modulePath+"/"+name {
			paths = append(paths, path)
		}
	}
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	reader := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	w := world{}
	for _, path := range paths {
		p, err := reader.Import(path)
		require.NoError(t, err)
		w[p.Name()] = p
	}
	return w
}

// has reports whether a type has a field or method, promoted ones included.
func has(of types.Type, name string) bool {
	member, _, _ := types.LookupFieldOrMethod(of, true, nil, name)
	return member != nil
}

// variables are the types of the variables in documents.
var variables = map[string]string{
	"reaper": "idle.Reaper", "conn": "idle.Conn", "ev": "idle.Event", "timers": "timer.Timer", "timeout": "timer.Timeout",
	"ln": "idlenet.Listener",
}

var (
	spanPattern      = regexp.MustCompile("`([^`]+)`")
	qualifiedPattern = regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)(?:\(\))?(?:\.([A-Z]\w*))?`)
	memberPattern    = regexp.MustCompile(`(?:^|[^\w.])([A-Z]\w*)\.([A-Z]\w*)`)
	literalPattern   = regexp.MustCompile(`(?:([a-z]+)\.)?\b([A-Z]\w*)(?:\[\w+\])?\{([^{}]*)`)
	elementPattern   = regexp.MustCompile(`^\s*([A-Z]\w*)\s*(?::|$)`)
)

// wrong returns the names in a code span that do not exist.
func (w world) wrong(span string) (list []string) {
	for _, m := range qualifiedPattern.FindAllStringSubmatch(span, -1) {
		from, name, member := m[1], m[2], m[3]
		if of := variables[from]; of != "" {
			p, typ, _ := strings.Cut(of, ".")
			if !has(w[p].Scope().Lookup(typ).Type(), name) {
				list = append(list, from+"."+name)
			}
			continue
		}
		if w[from] == nil {
			continue
		}
		object := w[from].Scope().Lookup(name)
		_, isType := object.(*types.TypeName)
		switch {
		case object == nil:
			list = append(list, from+"."+name)
		case member != "" && isType && !has(object.Type(), member):
			list = append(list, from+"."+name+"."+member)
		}
	}
	for _, m := range memberPattern.FindAllStringSubmatch(span, -1) {
		if w.lacks("", m[1], m[2]) {
			list = append(list, m[1]+"."+m[2])
		}
	}
	for _, m := range literalPattern.FindAllStringSubmatch(span, -1) {
		for element := range strings.SplitSeq(m[3], ",") {
			if e := elementPattern.FindStringSubmatch(element); e != nil && w.lacks(m[1], m[2], e[1]) {
				list = append(list, m[2]+"{"+e[1]+"}")
			}
		}
	}
	return list
}

// lacks reports whether a name stands for types, of which none has a member. The name is that of a
// type, or of a field. It is looked up in the package from, or in all packages of this module.
func (w world) lacks(from, name, member string) bool {
	known := false
	for of, p := range w {
		if of != from && (from != "" || of == "gnet") {
			continue
		}
		for _, object := range p.Scope().Names() {
			typ, isType := p.Scope().Lookup(object).(*types.TypeName)
			if !isType {
				continue
			}
			list := []*types.Var{types.NewVar(token.NoPos, p, object, typ.Type())}
			if s, isStruct := typ.Type().Underlying().(*types.Struct); isStruct {
				list = slices.AppendSeq(list, s.Fields())
			}
			for _, v := range list {
				if v.Name() == name {
					if has(v.Type(), member) {
						return false
					}
					known = true
				}
			}
		}
	}
	return known
}

func TestNamesInDocumentsExist(t *testing.T) {
	w := readWorld(t)
	for _, d := range documents(t) {
		prose, _ := d.split()
		for i, line := range prose {
			for _, span := range spanPattern.FindAllStringSubmatch(line, -1) {
				for _, name := range w.wrong(span[1]) {
					t.Errorf("%s:%d: `%s` has %s, which does not exist", d.path, i+1, span[1], name)
				}
			}
		}
	}
}

func TestWrongNamesAreFound(t *testing.T) {
	w := readWorld(t)
	for span, want := range map[string]string{
		"idle.Config.ReadTimeout": "", "reap.ReadIdle": "", "Reaper.Update": "", "conn.Ready()": "", "Conn.Touch": "",
		"idle.Config{ReadTimeout: time.Second}": "", "wheel.New[T](tick, slots)": "", "Heartbeat{Interval, Retry}": "",
		"gnet.Conn.Wake": "", "gnet.WithMulticore": "", "Server.Reaper().Update": "", "time.AfterFunc": "",
		"ChannelOption.SO_KEEPALIVE": "", "Timer.newTimeout": "", "Idle.ShedProtect": "", "TimerConfig{Tick}": "",

		"idle.Conf": "idle.Conf", "idle.Config.ReadTimeOut": "idle.Config.ReadTimeOut", "Reaper.Upgrade": "Reaper.Upgrade",
		"conn.Red()": "conn.Red", "Conn.Wake": "Conn.Wake", "idle.Config{ReadTimeOut: 1}": "Config{ReadTimeOut}",
		"Heartbeat{Interval, Nonsense}": "Heartbeat{Nonsense}", "gnet.WithNonsense": "gnet.WithNonsense",
		"gnet.Conn.Nonsense": "gnet.Conn.Nonsense", "Idle.Nonsense": "Idle.Nonsense", "timer.Restart()": "timer.Restart", "ev.Last": "ev.Last",
	} {
		got := strings.Join(w.wrong(span), " ")
		assert.Equal(t, want, got, "in `%s` %q is wrong, want %q", span, got, want)
	}
}

var testPattern = regexp.MustCompile("`((?:(?:Test|Benchmark|Fuzz|Example)[A-Z]|Example_)\\w*)(?:/[^`]*)?`")

// TestTestsInDocumentsExist looks up the tests that documents name.
func TestTestsInDocumentsExist(t *testing.T) {
	known := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(b, -1) {
			known[string(m[1])] = true
		}
		return err
	})
	require.NoError(t, err)
	for _, d := range documents(t) {
		prose, _ := d.split()
		for i, line := range prose {
			for _, m := range testPattern.FindAllStringSubmatch(line, -1) {
				assert.True(t, known[m[1]], "%s:%d: there is no %s", d.path, i+1, m[1])
			}
		}
	}
}
