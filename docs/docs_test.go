// Package docs_test keeps the documents true: the names in them exist, their Go code compiles, and
// their links resolve.
package docs_test

import (
	"encoding/json"
	"fmt"
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
	"unicode"
)

const modulePath = "github.com/idlewheel/idlewheel"

// root is the directory of the module, seen from this one.
const root = ".."

// A document is a file with Markdown.
type document struct {
	path  string // from the root, with slashes
	lines []string
}

// A block is the text between two fences.
type block struct {
	info string // the rest of the opening fence
	line int    // of the first line inside, counted from 1
	text string
}

// documents returns README.md and docs/*.md.
func documents(t *testing.T) []document {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	var list []document
	for _, path := range append(paths, filepath.Join(root, "README.md")) {
		list = append(list, readDocument(t, path))
	}
	return list
}

func readDocument(t testing.TB, path string) document {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	return document{filepath.ToSlash(name), strings.Split(string(b), "\n")}
}

// split returns the blocks of the document, and its lines with those of blocks and fences empty.
func (d document) split() (prose []string, blocks []block) {
	prose = slices.Clone(d.lines)
	inside := false
	for i, line := range d.lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			blocks = append(blocks, block{info: strings.TrimSpace(strings.TrimSpace(line)[3:]), line: i + 2})
		case inside && !fence:
			blocks[len(blocks)-1].text += line + "\n"
		}
		if fence || inside {
			prose[i] = ""
		}
		if fence {
			inside = !inside
		}
	}
	return prose, blocks
}

// --- Go code compiles

// imports are the packages that a block may use without an import, by their names.
var imports = map[string]string{
	"gnet": "github.com/panjf2000/gnet/v2",
}

func init() {
	for _, p := range []string{"admin", "idle", "metrics", "server", "timer", "wheel"} {
		imports[p] = modulePath + "/" + p
	}
	for _, p := range []string{"bufio", "bytes", "context", "errors", "fmt", "io", "log", "log/slog", "math", "net", "net/http",
		"net/netip", "os", "os/signal", "strconv", "strings", "sync", "sync/atomic", "syscall", "testing", "time"} {
		imports[p[strings.LastIndex(p, "/")+1:]] = p
	}
}

// TestGoBlocksCompile makes a package of all Go blocks of a document. Declarations are copied, and
// a block of statements becomes a function. A block with the mark "go fragment" is left out.
func TestGoBlocksCompile(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.path, func(t *testing.T) {
			t.Parallel()
			_, blocks := d.split()
			source, err := packageOf(d.path, blocks)
			if err != nil {
				t.Fatal(err)
			}
			if source == "" {
				t.Skip("has no Go")
			}
			if out, err := build(t, source); err != nil {
				t.Errorf("%v\n%s\nThe names above are lines of %s.", err, out, d.path)
			}
		})
	}
}

// packageOf returns a Go file with the blocks of a document, "" if they have no Go.
func packageOf(path string, blocks []block) (string, error) {
	var body strings.Builder
	name := "snippets"
	for _, b := range blocks {
		if b.info != "go" {
			continue
		}
		text := b.text
		if _, err := parse(text); err != nil {
			text = "func _() error {\n//line " + fmt.Sprintf("%s:%d\n", path, b.line) + text + "\nreturn nil\n}\n"
			if _, wrapped := parse(text); wrapped != nil {
				return "", fmt.Errorf("%s:%d is not Go: %w", path, b.line, err)
			}
		}
		if strings.Contains(text, "\nfunc main()") || strings.HasPrefix(text, "func main()") {
			name = "main"
		}
		fmt.Fprintf(&body, "//line %s:%d\n%s\n", path, b.line, text)
	}
	if body.Len() == 0 {
		return "", nil
	}
	f, err := parse(body.String())
	if err != nil {
		return "", err
	}
	used := map[string]bool{}
	for _, id := range f.Unresolved {
		if p := imports[id.Name]; p != "" {
			used[p] = true
		}
	}
	var head strings.Builder
	fmt.Fprintf(&head, "package %s\n", name)
	for _, p := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&head, "import %q\n", p)
	}
	return head.String() + body.String(), nil
}

func parse(declarations string) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), "", "package p\n"+declarations, 0)
}

// build compiles a file as a package of this module, with an overlay instead of a file in it.
func build(t *testing.T, source string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "snippets.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "snippets", "snippets.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", os.DevNull, "./snippets")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestBuildFindsMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"var _ = idle.Config{ReadTimeout: time.Second}\n":   "",
		"cfg := idle.Config{}\nreturn cfg.Nonsense\n":       "Nonsense",
		"var _ = idle.Config{ReadTimeout: \"ten\"}\n":       "Duration value",
		"func f(c gnet.Conn) { c.Write() }\nfunc main() {}": "not enough arguments",
	} {
		source, err := packageOf("x.md", []block{{info: "go", line: 7, text: text}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := build(t, source)
		if (err == nil) != (want == "") || !strings.Contains(out, want) || want != "" && !strings.Contains(out, "x.md:") {
			t.Errorf("%q: %v, %q; want %q at a line of x.md", text, err, out, want)
		}
	}
	if _, err := packageOf("x.md", []block{{info: "go", line: 7, text: "func {"}}); err == nil {
		t.Error("a block that is not Go is accepted")
	}
}

// --- names exist

// A symbols has the names of a package, and the members of its types.
type symbols struct {
	names   map[string]bool
	members map[string]map[string]bool // of types: fields and methods
	fields  map[string]string          // of any struct: the type in the source
	open    map[string]bool            // types that embed a type of another package
	embeds  map[string][]string
}

// readSymbols reads the files of a package for all systems, without tests.
func readSymbols(t testing.TB, dir string) *symbols {
	t.Helper()
	s := &symbols{map[string]bool{}, map[string]map[string]bool{}, map[string]string{}, map[string]bool{}, map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			s.add(d)
		}
	}
	return s
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
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range dirs {
		dir := filepath.Dir(path)
		if name := filepath.Base(dir); w[name] == nil && imports[name] == modulePath+"/"+name {
			w[name] = readSymbols(t, dir)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", imports["gnet"]).Output()
	if err != nil {
		t.Fatalf("where is gnet? %v", err)
	}
	w["gnet"] = readSymbols(t, strings.TrimSpace(string(out)))
	return w
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
			if d.path == "docs/upgrading.md" {
				line = withoutOldNames(line)
			}
			for _, span := range spanPattern.FindAllStringSubmatch(line, -1) {
				for _, name := range w.wrong(span[1]) {
					t.Errorf("%s:%d: `%s` has %s, which does not exist", d.path, i+1, span[1], name)
				}
			}
		}
	}
}

// withoutOldNames removes the first cell of a row of a table.
func withoutOldNames(line string) string {
	if row, ok := strings.CutPrefix(line, "|"); ok {
		_, line, _ = strings.Cut(row, "|")
	}
	return line
}

// TestOldNamesAreGone checks that a name with another new name does not exist any more.
func TestOldNamesAreGone(t *testing.T) {
	w := readWorld(t)
	rows, _ := readDocument(t, filepath.Join(root, "docs", "upgrading.md")).split()
	for i, line := range rows {
		old := strings.TrimSuffix(line, withoutOldNames(line))
		for _, span := range oldNamePattern.FindAllStringSubmatch(old, -1) {
			if name := span[1]; !strings.Contains(withoutOldNames(line), name) && len(w.wrong(name)) == 0 {
				t.Errorf("docs/upgrading.md:%d: %s still exists", i+1, name)
			}
		}
	}
}

// oldNamePattern finds names of packages and methods of the Reaper.
var oldNamePattern = regexp.MustCompile("`((?:admin|idle|metrics|reaper|server)\\.[A-Z]\\w*)")

func TestWrongNamesAreFound(t *testing.T) {
	w := readWorld(t)
	for span, want := range map[string]string{
		"idle.Config.ReadTimeout": "", "idle.ReadIdle": "", "Reaper.Update": "", "conn.Ready()": "", "Conn.Touch": "",
		"idle.Config{ReadTimeout: time.Second}": "", "wheel.New[T](tick, slots)": "", "Heartbeat{Interval, Retry}": "",
		"gnet.Conn.Wake": "", "gnet.WithMulticore": "", "Server.Reaper().Update": "", "time.AfterFunc": "",
		"ChannelOption.SO_KEEPALIVE": "", "Timer.newTimeout": "", "Idle.ShedProtect": "", "TimerConfig{Tick}": "",

		"idle.Conf": "idle.Conf", "idle.Config.ReadTimeOut": "idle.Config.ReadTimeOut", "Reaper.Upgrade": "Reaper.Upgrade",
		"conn.Red()": "conn.Red", "Conn.Wake": "Conn.Wake", "idle.Config{ReadTimeOut: 1}": "Config{ReadTimeOut}",
		"Heartbeat{Interval, Nonsense}": "Heartbeat{Nonsense}", "gnet.WithNonsense": "gnet.WithNonsense",
		"gnet.Conn.Nonsense": "", // it embeds interfaces of other packages
		"Idle.Nonsense":      "Idle.Nonsense", "timer.Restart()": "timer.Restart", "ev.Last": "ev.Last",
	} {
		if got := strings.Join(w.wrong(span), " "); got != want {
			t.Errorf("in `%s` %q is wrong, want %q", span, got, want)
		}
	}
}

var testPattern = regexp.MustCompile("`((?:Test|Benchmark|Fuzz|Example)[A-Z]\\w*)(?:/[^`]*)?`")

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
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t) {
		prose, _ := d.split()
		for i, line := range prose {
			for _, m := range testPattern.FindAllStringSubmatch(line, -1) {
				if !known[m[1]] {
					t.Errorf("%s:%d: there is no %s", d.path, i+1, m[1])
				}
			}
		}
	}
}

// --- links resolve

var (
	linkPattern    = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)?)\)`)
	headingPattern = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	labelPattern   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors of the headings of a document, in the form of GitHub.
func (d document) anchors() map[string]bool {
	list := map[string]bool{}
	seen := map[string]int{}
	prose, _ := d.split()
	for _, line := range prose {
		m := headingPattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, labelPattern.ReplaceAllString(m[1], "$1"))
		if n := seen[slug]; n > 0 {
			list[fmt.Sprintf("%s-%d", slug, n)] = true
		} else {
			list[slug] = true
		}
		seen[slug]++
	}
	return list
}

// broken returns what is wrong with a link of the document, "" if it resolves.
func (d document) broken(t testing.TB, link string) string {
	if strings.Contains(link, "://") {
		if !strings.HasPrefix(link, "https://") {
			return "is not https"
		}
		return ""
	}
	path, anchor, _ := strings.Cut(link, "#")
	target := filepath.Join(root, filepath.FromSlash(d.path))
	if path != "" {
		target = filepath.Join(filepath.Dir(target), filepath.FromSlash(path))
	}
	if _, err := os.Stat(target); err != nil {
		return "leads to no file"
	}
	if anchor != "" && strings.HasSuffix(target, ".md") && !readDocument(t, target).anchors()[anchor] {
		return "has an anchor without a heading"
	}
	return ""
}

func TestLinksResolve(t *testing.T) {
	for _, d := range documents(t) {
		prose, _ := d.split()
		for i, line := range prose {
			for _, m := range linkPattern.FindAllStringSubmatch(spanPattern.ReplaceAllString(line, "``"), -1) {
				if why := d.broken(t, m[1]); why != "" {
					t.Errorf("%s:%d: the link %s %s", d.path, i+1, m[1], why)
				}
			}
		}
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	d := document{"docs/netty.md", nil}
	for link, ok := range map[string]bool{
		"../README.md": true, "../README.md#guarantees": true, "../README.md#what-happens-when-": true, "https://netty.io/": true,
		"../README.md#nonsense": false, "nonsense.md": false, "http://netty.io/": false,
	} {
		if why := d.broken(t, link); (why == "") != ok {
			t.Errorf("%s: %q", link, why)
		}
	}
}

// --- Netty

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
			if !found {
				t.Errorf("netty.md has no row for %s under a heading with %s", name, class)
			}
		}
	}
}

// TestProseIsNarrow checks that prose fits into a terminal. Rows of tables may be longer.
func TestProseIsNarrow(t *testing.T) {
	for _, name := range []string{"netty.md", "alternatives.md"} {
		d := readDocument(t, filepath.Join(root, "docs", name))
		for i, line := range d.lines {
			if n := len([]rune(line)); n > 140 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d columns, want at most 140", d.path, i+1, n)
			}
		}
	}
}
