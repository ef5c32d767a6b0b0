package check

import (
	"bytes"
	"debug/elf"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// instructions are those that the Containerfile uses: the parser takes any word for one.
var instructions = strings.Fields("FROM WORKDIR COPY RUN ENV USER EXPOSE STOPSIGNAL ENTRYPOINT CMD")

// stages parses the Containerfile and returns the instructions of each stage, which begin with FROM.
func stages(t *testing.T) (stages [][]*parser.Node) {
	t.Helper()
	file, err := parser.Parse(bytes.NewReader(read(t, "container/Containerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range file.Warnings {
		t.Errorf("warning: %s", w.Short)
	}
	for _, node := range file.AST.Children {
		if strings.EqualFold(node.Value, "FROM") {
			stages = append(stages, nil)
		}
		if !slices.Contains(instructions, strings.ToUpper(node.Value)) {
			t.Errorf("%s is no instruction, or one that nobody has thought of here", node.Value)
		}
		if len(stages) == 0 {
			t.Fatalf("%s stands before the first FROM", node.Original)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], node)
	}
	return stages
}

// words returns the arguments of an instruction.
func words(node *parser.Node) (words []string) {
	for n := node.Next; n != nil; n = n.Next {
		words = append(words, n.Value)
	}
	return words
}

func TestImagesHaveOneFileAndNobodysRights(t *testing.T) {
	all := stages(t)
	base := words(all[0][0])[0]
	gomod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(string(gomod))
	if version == nil || !regexp.MustCompile(`/golang:`+regexp.QuoteMeta(version[1])+`\.\d+`).MatchString(base) {
		t.Errorf("it is built in %s, and go.mod says %v: name a patch release of that", base, version)
	}
	if last := words(all[len(all)-1][0]); last[len(last)-1] != "server" {
		t.Errorf("without a target %s is built", last[len(last)-1])
	}
	for _, stage := range all[1:] {
		user := ""
		for _, node := range stage {
			args := words(node)
			switch strings.ToUpper(node.Value) {
			case "FROM":
				if args[0] != "scratch" {
					t.Errorf("an image is made from %s", args[0])
				}
			case "USER":
				user = args[0]
			case "RUN", "SHELL", "HEALTHCHECK":
				t.Errorf("there is nothing in the image that could do this: %s", node.Original)
			case "ENTRYPOINT", "CMD":
				if !node.Attributes["json"] {
					t.Errorf("there is no shell in the image for this: %s", node.Original)
				}
			}
		}
		id, _, _ := strings.Cut(user, ":")
		if n, err := strconv.Atoi(id); err != nil || n == 0 {
			t.Errorf("the user is %q: set a number other than 0", user)
		}
	}
	for _, node := range all[len(all)-1] {
		if strings.EqualFold(node.Value, "CMD") {
			wantFlags(t, must(t, echoHeartbeat), words(node))
		}
	}
}

// TestProgramsNeedNoLibrary checks that what is built as there runs in an empty image.
func TestProgramsNeedNoLibrary(t *testing.T) {
	for _, built := range []func() (string, error){echoHeartbeat, loadtest} {
		f, err := elf.Open(must(t, built))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Error("it wants a dynamic linker")
			}
		}
	}
	for _, node := range stages(t)[0] {
		if args := words(node); strings.EqualFold(node.Value, "ENV") && len(args) > 1 && args[0] == "CGO_ENABLED" && args[1] == "0" {
			return
		}
	}
	t.Error("the Containerfile does not set CGO_ENABLED=0")
}
