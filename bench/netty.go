package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed netty/NettyBench.java
var nettySource []byte

// nettyJars is the folder of the jars of Debian's libnetty-java.
const nettyJars = "/usr/share/java"

const nettyName = "Netty HashedWheelTimer"

func nettyCandidate() candidate {
	return candidate{
		name: nettyName, netty: true,
		note: "On a Java VM with its default settings, after a warm-up for the JIT compiler. Its processor time includes " +
			"the compiler's and the garbage collector's threads.",
		moves:   "No reschedule: cancel and newTimeout.",
		leftOut: map[string]string{workHeartbeat: "in so short a time the JIT compiler uses as much processor time as the timers"},
	}
}

// A nettyProgram is the compiled NettyBench.
type nettyProgram struct {
	dir       string // holds the classes; removed by close
	classPath string
	version   string
}

// compileNetty compiles NettyBench into a temporary directory. An error is the reason why Netty is
// left out.
func compileNetty(ctx context.Context) (nettyProgram, error) {
	var p nettyProgram
	if _, err := exec.LookPath("java"); err != nil {
		return p, errors.New("no java command")
	}
	jars, err := filepath.Glob(filepath.Join(nettyJars, "netty-common-*.jar"))
	if err != nil || len(jars) == 0 {
		return p, errors.New("no netty-common jar: install the Debian package libnetty-java")
	}
	p.version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "netty-common-"), ".jar")

	if p.dir, err = os.MkdirTemp("", "nettybench-"); err != nil {
		return p, err
	}
	source := filepath.Join(p.dir, "NettyBench.java")
	if err := os.WriteFile(source, nettySource, 0o644); err != nil {
		return p, errors.Join(err, p.close())
	}
	more, _ := filepath.Glob(filepath.Join(nettyJars, "jctools-core.jar")) // the pattern is good
	p.classPath = strings.Join(append([]string{p.dir, jars[0]}, more...), string(filepath.ListSeparator))
	compile := exec.CommandContext(ctx, "java", "-m", "jdk.compiler/com.sun.tools.javac.Main",
		"-cp", p.classPath, "-d", p.dir, source)
	if out, err := compile.CombinedOutput(); err != nil {
		return p, errors.Join(fmt.Errorf("compiling NettyBench.java: %w: %s", err, firstLine(string(out))), p.close())
	}
	return p, nil
}

func (p nettyProgram) command(ctx context.Context, j job) *exec.Cmd {
	pair := func(key string, value int64) string { return key + "=" + strconv.FormatInt(value, 10) }
	return exec.CommandContext(ctx, "java", "-cp", p.classPath, "NettyBench",
		"work="+j.Work, pair("n", int64(j.N)), pair("seed", int64(j.Seed)),
		pair("tick", int64(tick)), pair("slots", ringSlots),
		pair("low", int64(minTimeout)), pair("high", int64(maxTimeout)),
		pair("measure", int64(j.Measure)), pair("warmup", int64(j.WarmUp)), pair("settle", int64(j.Settle)),
		pair("patience", int64(j.Patience)),
		pair("expiryLow", int64(j.ExpiryLow)), pair("expiryHigh", int64(j.ExpiryHigh)), pair("hold", int64(j.Hold)))
}

func (p nettyProgram) close() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}
