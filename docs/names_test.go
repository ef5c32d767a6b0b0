package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
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

// A symbols has the names of a package, and the members of its types.
type symbols struct {
	names   map[string]bool
	members map[string]map[string]bool // of types: fields and methods
	fields  map[string]string          // of any struct: the type in the source
	open    map[string]bool            // types that embed a type of another package
	embeds  map[string][]string
	aliases map[string]string // of types of other packages, as pkg.T
}

func newSymbols() *symbols {
	return &symbols{map[string]bool{}, map[string]map[string]bool{}, map[string]string{}, map[string]bool{}, map[string][]string{}, map[string]string{}}
}

// readSymbols reads the files of a package for all systems, without tests.
func readSymbols(t testing.TB, dir string) *symbols {
	t.Helper()
	s := newSymbols()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		s.addFile(t, path)
	}
	return s
}

// addFile adds the names of a file, and returns the name of its package.
func (s *symbols) addFile(t testing.TB, path string) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range f.Decls {
		s.add(d)
	}
	return f.Name.Name
}

func (s *symbols) add(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			s.names[d.Name.Name] = true
			return
		}
		s.member(typeName(d.Recv.List[0].Type), d.Name.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					s.names[n.Name] = true
				}
			case *ast.TypeSpec:
				s.names[spec.Name.Name] = true
				if spec.Assign.IsValid() {
					s.aliases[spec.Name.Name] = typeName(spec.Type)
				}
				s.addType(spec.Name.Name, spec.Type)
			}
		}
	}
}

func (s *symbols) addType(name string, t ast.Expr) {
	s.member(name, "")
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		if _, ok := t.(*ast.Ident); !ok {
			return
		}
		list = &ast.FieldList{List: []*ast.Field{{Type: t}}}
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			s.member(name, n.Name)
			s.fields[n.Name] = typeName(f.Type)
		}
		if len(f.Names) > 0 {
			continue
		}
		if _, foreign := f.Type.(*ast.SelectorExpr); foreign {
			s.open[name] = true
			continue
		}
		s.embeds[name] = append(s.embeds[name], typeName(f.Type))
	}
}

func (s *symbols) member(of, name string) {
	if s.members[of] == nil {
		s.members[of] = map[string]bool{}
	}
	s.members[of][name] = true
}

// typeName returns the name of a type without pointers and parameters: T, or pkg.T.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.SelectorExpr:
		return typeName(t.X) + "." + t.Sel.Name
	}
	return ""
}

// has reports whether a type has a member, promoted ones included.
func (s *symbols) has(of, name string) bool {
	if s.members[of][name] || s.open[of] {
		return true
	}
	return slices.ContainsFunc(s.embeds[of], func(e string) bool { return s.has(e, name) })
}

// A world has the symbols of all packages that documents may name.
type world map[string]*symbols

func readWorld(t testing.TB) world {
	t.Helper()
	w := world{}
	dirs, err := filepath.Glob(filepath.Join(root, "*", "*.go"))
	require.NoError(t, err)
	for _, path := range dirs {
		dir := filepath.Dir(path)
		if name := filepath.Base(dir); w[name] == nil && imports[name] == modulePath+"/"+name {
			w[name] = readSymbols(t, dir)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", imports["gnet"]).Output()
	require.NoError(t, err, "where is gnet? %v", err)
	w["gnet"] = readSymbols(t, strings.TrimSpace(string(out)))
	w.follow()
	return w
}

// follow gives aliases the members of their types.
func (w world) follow() {
	for _, s := range w {
		for name, of := range s.aliases {
			from, typ, _ := strings.Cut(of, ".")
			if w[from] != nil {
				s.members[name] = w[from].members[typ]
				maps.Copy(s.fields, w[from].fields)
			}
		}
	}
}

// ours returns the packages of this module.
func (w world) ours() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if name != "gnet" {
			list = append(list, name)
		}
	}
	return list
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
			if s := w[p]; s != nil && !s.has(typ, name) {
				list = append(list, from+"."+name)
			}
			continue
		}
		s := w[from]
		switch {
		case s == nil:
		case !s.names[name]:
			list = append(list, from+"."+name)
		case member != "" && s.members[name] != nil && !s.has(name, member):
			list = append(list, from+"."+name+"."+member)
		}
	}
	for _, m := range memberPattern.FindAllStringSubmatch(span, -1) {
		if types := w.typesOf("", m[1]); len(types) > 0 && !w.anyHas(types, m[2]) {
			list = append(list, m[1]+"."+m[2])
		}
	}
	for _, m := range literalPattern.FindAllStringSubmatch(span, -1) {
		types := w.typesOf(m[1], m[2])
		for element := range strings.SplitSeq(m[3], ",") {
			e := elementPattern.FindStringSubmatch(element)
			if e != nil && len(types) > 0 && !w.anyHas(types, e[1]) {
				list = append(list, m[2]+"{"+e[1]+"}")
			}
		}
	}
	return list
}

// typesOf returns the types, as pkg.T, of a name: that of a type, or of fields with that name.
func (w world) typesOf(from, name string) (types []string) {
	packages := w.ours()
	if from != "" {
		packages = []string{from}
	}
	for _, p := range packages {
		s := w[p]
		if s == nil {
			continue
		}
		if s.members[name] != nil {
			types = append(types, p+"."+name)
		}
		of := s.fields[name]
		if !strings.Contains(of, ".") {
			of = p + "." + of
		}
		if q, typ, _ := strings.Cut(of, "."); w[q] != nil && w[q].members[typ] != nil {
			types = append(types, of)
		}
	}
	return types
}

func (w world) anyHas(types []string, member string) bool {
	return slices.ContainsFunc(types, func(t string) bool {
		p, typ, _ := strings.Cut(t, ".")
		return w[p].has(typ, member)
	})
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
		"gnet.Conn.Nonsense": "", // it embeds interfaces of other packages
		"Idle.Nonsense":      "Idle.Nonsense", "timer.Restart()": "timer.Restart", "ev.Last": "ev.Last",
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

// nettyNames are the names with a row in docs/netty.md. They are the public and protected
// members of these classes in Netty 4.1, read with javap, and the additions of 4.2.
var nettyNames = map[string][]string{
	"IdleStateHandler": {
		"readerIdleTime", "writerIdleTime", "allIdleTime", "unit", "observeOutput", "getReaderIdleTimeInMillis",
		"getWriterIdleTimeInMillis", "getAllIdleTimeInMillis", "channelIdle", "newIdleStateEvent", "resetReadTimeout", "resetWriteTimeout",
		"handlerAdded", "handlerRemoved", "channelRegistered", "channelActive", "channelInactive", "channelRead", "channelReadComplete",
		"write",
	},
	"IdleState": {"READER_IDLE", "WRITER_IDLE", "ALL_IDLE", "values", "valueOf"},
	"IdleStateEvent": {
		"state", "isFirst", "toString", "FIRST_READER_IDLE_STATE_EVENT", "READER_IDLE_STATE_EVENT", "FIRST_WRITER_IDLE_STATE_EVENT",
		"WRITER_IDLE_STATE_EVENT", "FIRST_ALL_IDLE_STATE_EVENT", "ALL_IDLE_STATE_EVENT",
	},
	"ReadTimeoutHandler":    {"timeout", "readTimedOut"},
	"WriteTimeoutHandler":   {"timeout", "writeTimedOut"},
	"TimeoutException":      {"fillInStackTrace"},
	"ReadTimeoutException":  {"INSTANCE"},
	"WriteTimeoutException": {"INSTANCE"},
	"HashedWheelTimer": {
		"threadFactory", "tickDuration", "unit", "ticksPerWheel", "leakDetection", "maxPendingTimeouts", "taskExecutor", "start", "stop",
		"newTimeout", "pendingTimeouts", "WORKER_STATE_INIT", "WORKER_STATE_STARTED", "WORKER_STATE_SHUTDOWN", "finalize",
	},
	"Timer":     {"newTimeout", "stop"},
	"Timeout":   {"timer", "task", "isExpired", "isCancelled", "cancel"},
	"TimerTask": {"run", "cancelled"},
	"Around":    {"SO_KEEPALIVE", "CONNECT_TIMEOUT_MILLIS", "fireUserEventTriggered", "ChannelGroup", "SslHandler", "setHandshakeTimeout"},
}

func TestEachNameOfNettyHasARow(t *testing.T) {
	d := readDocument(t, filepath.Join(root, "docs", "netty.md"))
	rows := map[string][]string{} // by section
	var section string
	for _, line := range d.lines {
		if m := headingPattern.FindStringSubmatch(line); m != nil {
			section = m[1]
		}
		if strings.HasPrefix(line, "|") {
			rows[section] = append(rows[section], line)
		}
	}
	for class, members := range nettyNames {
		for _, name := range append([]string{class}, members...) {
			if name == "Around" {
				continue
			}
			found := false
			for section, lines := range rows {
				if !strings.Contains(section, class) {
					continue
				}
				for _, line := range lines {
					first, _, _ := strings.Cut(line[1:], " | ")
					found = found || regexp.MustCompile(`\b`+name+`\b`).MatchString(first)
				}
			}
			assert.True(t, found, "netty.md has no row for %s under a heading with %s", name, class)
		}
	}
}
