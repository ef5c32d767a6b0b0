package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestVersionHasTheVersionsOfTheBuild(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		var out, errs syncbuf.Buffer
		require.Zero(t, run(t.Context(), []string{arg}, &out, &errs), errs.String())
		lines := strings.Split(out.String(), "\n")
		assert.Regexp(t, `^echo-heartbeat (\(devel\)|v\d+\.\d+\.\d+)`, lines[0])
		assert.Contains(t, lines, "go "+runtime.Version())
		assert.Regexp(t, `\ngnet v2\.\d+\.\d+\n$`, out.String())
	}
}

func TestVersionHasTheRevisionOfAClone(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}}
	assert.Equal(t, "echo-heartbeat v0.1.0\ngo go1.26.8\ngnet v2.10.0\n", describe(info, "v2.10.0"), "of a release")

	info.Main.Version = "v0.1.1-0.20261123020000-0123456789ab+dirty"
	info.Settings = []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"},
		{Key: "vcs.time", Value: "2026-11-23T02:00:00Z"},
		{Key: "vcs.modified", Value: "true"},
	}
	assert.Equal(t, "echo-heartbeat v0.1.1-0.20261123020000-0123456789ab+dirty\n"+
		"revision 0123456789abcdef, with changes\ncommitted 2026-11-23T02:00:00Z\ngo go1.26.8\ngnet v2.10.0\n",
		describe(info, "v2.10.0"), "of a clone with changes")
}
