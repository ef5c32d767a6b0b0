package check

import (
	"bytes"
	"debug/elf"
	"go/version"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// instructions are the instructions of the Containerfile. The parser accepts any word as one.
var instructions = strings.Fields("FROM WORKDIR COPY RUN ENV USER EXPOSE STOPSIGNAL ENTRYPOINT CMD")

// stages parses the Containerfile and returns the instructions of each stage, which begin with
// FROM.
func stages(t *testing.T) (stages [][]*parser.Node) {
	t.Helper()
	file, err := parser.Parse(bytes.NewReader(read(t, "container/Containerfile")))
	require.NoError(t, err)
	for _, w := range file.Warnings {
		t.Errorf("warning: %s", w.Short)
	}
	for _, node := range file.AST.Children {
		if node.Value = strings.ToUpper(node.Value); node.Value == "FROM" {
			stages = append(stages, nil)
		}
		assert.Contains(t, instructions, node.Value, "%s is not a known instruction", node.Value)
		require.NotEmpty(t, stages, "%s stands before the first FROM", node.Original)
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

// TestTheTokenOfTheGuideStaysOutside checks that the token, which the guide makes in the working
// directory, is neither committed nor copied into the stage that builds the image.
func TestTheTokenOfTheGuideStaysOutside(t *testing.T) {
	guide := read(t, "../docs/run.md")
	made := regexp.MustCompile(`openssl rand -hex 32 > (\w+)\)`).FindSubmatch(guide)
	if made == nil {
		t.Fatal("the guide makes no token")
	}
	for _, file := range []string{".gitignore", ".dockerignore"} {
		text := read(t, "../"+file)
		assert.Contains(t, strings.Split(string(text), "\n"), "/"+string(made[1]), "%s does not list /%s", file, made[1])
	}
}

// TestImagesHaveOneFileAndNoRights traces a program from its folder in the repository to the entry
// point of its image.
func TestImagesHaveOneFileAndNoRights(t *testing.T) {
	all := stages(t)
	build := words(all[0][0])
	base, name := build[0], build[len(build)-1]
	gomod := read(t, "../go.mod")
	least := regexp.MustCompile(`(?m)^go (\S+)`).FindStringSubmatch(string(gomod))
	patch := regexp.MustCompile(`/golang:(\d+\.\d+\.\d+)`).FindStringSubmatch(base)
	assert.False(t, least == nil || patch == nil || version.Compare("go"+patch[1], "go"+least[1]) < 0,
		"it is built in %s, and go.mod says %v: name a patch release of that or a later version", base, least)
	last := words(all[len(all)-1][0])
	assert.Equal(t, "server", last[len(last)-1], "without a target %s is built", last[len(last)-1])
	built := map[string]bool{}
	for _, node := range all[0] {
		args := words(node)
		switch {
		case node.Value == "RUN" && slices.Contains(args, "build"):
			pkg := args[len(args)-1]
			// The tests build and run these two.
			assert.Contains(t, []string{"./cmd/echo-heartbeat", "./loadtest"}, pkg, "it builds %s, which no test runs", pkg)
			out := slices.Index(args, "-o")
			_, err := os.Stat(filepath.Join("../..", pkg))
			require.False(t, err != nil || out < 0, "%s: %v", node.Original, err)
			assert.Equal(t, filepath.Base(pkg), filepath.Base(args[out+1]), "%s becomes %s", pkg, args[out+1])
			built[args[out+1]] = true
		case node.Value == "COPY":
			for _, file := range args[:len(args)-1] {
				_, err := os.Stat(filepath.Join("../..", file))
				assert.NoError(t, err)
			}
		}
	}
	for _, stage := range all[1:] {
		user, there := "", map[string]bool{}
		for _, node := range stage {
			args := words(node)
			switch node.Value {
			case "FROM":
				assert.Equal(t, "scratch", args[0], "an image is made from %s", args[0])
			case "COPY":
				assert.False(t, !slices.Equal(node.Flags, []string{"--from=" + name}) || !built[args[0]],
					"no instruction builds it: %s", node.Original)
				assert.Equal(t, filepath.Base(args[1]), filepath.Base(args[0]),
					"another program has the same name: %s", node.Original)
				there[args[1]] = true
			case "USER":
				user = args[0]
			case "RUN", "SHELL", "HEALTHCHECK":
				t.Errorf("no program in the image can do this: %s", node.Original)
			case "ENTRYPOINT", "CMD":
				assert.True(t, node.Attributes["json"], "there is no shell in the image for this: %s", node.Original)
				if node.Value == "ENTRYPOINT" {
					assert.True(t, there[args[0]], "the image has %v and runs %s", there, args[0])
					delete(there, args[0])
				}
			}
		}
		assert.Empty(t, there, "%s: no image runs %v", stage[0].Original, there)
		id, _, _ := strings.Cut(user, ":")
		if n, err := strconv.Atoi(id); err != nil || n == 0 {
			t.Errorf("the user is %q: set a number other than 0", user)
		}
	}
}

// TestTheServerInTheImageIsReachedAndDrains checks the defaults of the image.
func TestTheServerInTheImageIsReachedAndDrains(t *testing.T) {
	all := stages(t)
	has := map[string][]string{}
	for _, node := range all[len(all)-1] {
		has[node.Value] = words(node)
	}
	assert.Equal(t, []string{"SIGTERM"}, has["STOPSIGNAL"],
		"it is stopped by %q, and drains upon SIGTERM", has["STOPSIGNAL"])
	wantFlags(t, must(t, echoHeartbeat), has["CMD"])
	addr, _ := valueOf(has["CMD"], "addr")
	host, port, err := net.SplitHostPort(addr)
	assert.False(t, err != nil || host != "" || !slices.Contains(has["EXPOSE"], port),
		"it listens on %q, and the image exposes %q: %v", addr, has["EXPOSE"], err)
	assert.True(t, strings.HasSuffix(has["ENTRYPOINT"][0], "/"+filepath.Base(must(t, echoHeartbeat))),
		"it runs %q", has["ENTRYPOINT"])
	var ports []string
	for _, p := range deployment(t).Spec.Template.Spec.Containers[0].Ports {
		ports = append(ports, strconv.Itoa(int(p.ContainerPort)))
	}
	assert.Equal(t, ports, has["EXPOSE"], "the image exposes %q, and the pods have %q", has["EXPOSE"], ports)
}

// TestProgramsNeedNoLibrary checks that programs built as in the Containerfile run in an empty
// image.
func TestProgramsNeedNoLibrary(t *testing.T) {
	for _, built := range []func() (string, error){echoHeartbeat, loadtest} {
		f, err := elf.Open(must(t, built))
		require.NoError(t, err)
		defer f.Close()
		for _, p := range f.Progs {
			assert.NotEqual(t, elf.PT_INTERP, p.Type, "it wants a dynamic linker")
		}
	}
	for _, node := range stages(t)[0] {
		if args := words(node); node.Value == "ENV" && len(args) > 1 && args[0] == "CGO_ENABLED" && args[1] == "0" {
			return
		}
	}
	t.Error("the Containerfile does not set CGO_ENABLED=0")
}
