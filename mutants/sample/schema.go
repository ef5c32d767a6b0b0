package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
)

// A change is one small fault. Its number is its position in the list of all changes.
type change struct {
	file, name string // the name is unique: file, function, what is changed
	line       int
}

// A schema is a source file that contains all its changes, switched off.
type schema struct {
	file, function string
	src            []byte
	fset           *token.FileSet
	changes        []change // those of earlier files too
	names          map[string]int
	before, after  map[int]string // texts that are inserted, by their offset
	seen           map[ast.Expr]bool
}

// mutate returns the source of a file with all changes, and appends these to the list.
func mutate(path, file, runtime string, changes []change) (string, []change, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	s := &schema{file, "", src, token.NewFileSet(), changes, map[string]int{}, map[int]string{}, map[int]string{}, map[ast.Expr]bool{}}
	f, err := parser.ParseFile(s.fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	for _, d := range f.Decls {
		s.function = "var"
		if fn, ok := d.(*ast.FuncDecl); ok {
			s.function = fn.Name.Name
			if fn.Recv != nil {
				s.function = strings.TrimPrefix(s.text(fn.Recv.List[0].Type), "*") + "." + s.function
			}
		}
		ast.Walk(visitor{s, nil}, d)
	}
	if len(s.before) > 0 {
		s.after[s.offset(f.Name.End())] = fmt.Sprintf("; import mutant %q", runtime)
	}
	var out strings.Builder
	for i, b := range src {
		out.WriteString(s.after[i] + s.before[i] + string(b))
	}
	return out.String(), s.changes, nil
}

func (s *schema) offset(p token.Pos) int { return s.fset.Position(p).Offset }
func (s *schema) text(n ast.Node) string { return string(s.src[s.offset(n.Pos()):s.offset(n.End())]) }

// add appends a change of a node, and returns its number.
func (s *schema) add(what string, n ast.Node) int {
	text := []rune(strings.Join(strings.Fields(s.text(n)), " "))
	if len(text) > 60 {
		text = append(text[:57], []rune("...")...)
	}
	name := fmt.Sprintf("%s: %s: %s %s", s.file, s.function, what, string(text))
	s.names[name]++
	if k := s.names[name]; k > 1 {
		name += fmt.Sprintf(" (%d)", k)
	}
	s.changes = append(s.changes, change{s.file, name, s.fset.Position(n.Pos()).Line})
	return len(s.changes) - 1
}

// wrap inserts a text before a node, and one after it. An outer node is wrapped before inner ones.
func (s *schema) wrap(n ast.Node, before, after string) {
	s.before[s.offset(n.Pos())] += before
	s.after[s.offset(n.End())] = after + s.after[s.offset(n.End())]
}

// condition makes each operand of a condition true and false, but a loop that never ends.
func (s *schema) condition(e ast.Expr, loop bool) {
	e = ast.Unparen(e)
	switch x := e.(type) {
	case nil:
		return
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			s.condition(x.X, loop)
			return
		}
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			s.condition(x.X, loop)
			s.condition(x.Y, loop)
			return
		}
	}
	switch text := s.text(e); {
	case s.seen[e]:
	case text == "false":
		s.wrap(e, fmt.Sprintf("(mutant.Is(%d) || ", s.add("true instead of", e)), ")")
	case loop || text == "true":
		s.wrap(e, fmt.Sprintf("(!mutant.Is(%d) && (", s.add("false instead of", e)), "))")
	default:
		n := s.add("true instead of", e)
		s.add("false instead of", e)
		s.wrap(e, fmt.Sprintf("mutant.Cond(%d, ", n), ")")
	}
	s.seen[e] = true
}

// A visitor changes a function with these results.
type visitor struct {
	*schema
	results *ast.FieldList
}

func (v visitor) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok == token.CONST {
			return nil
		}
	case *ast.FuncDecl:
		v.results = n.Type.Results
	case *ast.FuncLit:
		v.results = n.Type.Results
	case *ast.IfStmt:
		v.condition(n.Cond, false)
	case *ast.ForStmt:
		v.condition(n.Cond, true)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			v.cases(n.Body.List)
		}
	case *ast.BinaryExpr:
		if n.Op.Precedence() <= token.EQL.Precedence() { // a comparison, && or ||
			v.condition(n, false)
		}
	case *ast.BlockStmt:
		v.statements(n.List)
	case *ast.CaseClause:
		v.statements(n.Body)
	case *ast.CommClause:
		v.statements(n.Body)
	}
	return v
}

func (v visitor) cases(list []ast.Stmt) {
	for _, c := range list {
		for _, e := range c.(*ast.CaseClause).List {
			v.condition(e, false)
		}
	}
}

// statements makes each statement removable that may be missing.
func (v visitor) statements(list []ast.Stmt) {
	for _, s := range list {
		removable := false
		switch s := s.(type) {
		case *ast.ExprStmt:
			removable = !strings.HasPrefix(v.text(s), "panic(")
		case *ast.AssignStmt:
			removable = s.Tok != token.DEFINE
		case *ast.BranchStmt:
			removable = s.Tok == token.BREAK || s.Tok == token.CONTINUE
		case *ast.ReturnStmt:
			if removable = v.results == nil; !removable {
				v.returns(s)
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
			removable = true
		}
		if removable {
			v.wrap(s, fmt.Sprintf("if !mutant.Is(%d) { ", v.add("without", s)), " }")
		}
	}
}

// isZero matches a result that is the zero value already.
var isZero = regexp.MustCompile(`^(nil|0|""|gnet\.None|[\w.]+\{\})$`)

// returns changes the results of a function: false and true, or the zero values of other types.
func (v visitor) returns(s *ast.ReturnStmt) {
	var types []string
	for _, f := range v.results.List {
		types = append(types, slices.Repeat([]string{v.text(f.Type)}, max(len(f.Names), 1))...)
	}
	zero := true
	for i, e := range s.Results {
		if len(s.Results) == len(types) && types[i] == "bool" {
			v.condition(e, false)
		} else {
			zero = zero && isZero.MatchString(v.text(e))
		}
	}
	if !zero {
		n := v.add("zero instead of", s)
		v.wrap(s, fmt.Sprintf("if mutant.Is(%d) { return *new(%s) }; ", n, strings.Join(types, "), *new(")), "")
	}
}
