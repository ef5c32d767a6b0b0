package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, of Go and of gnet",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), cmd.Root().Version)
			return err
		},
	}
}

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{GoVersion: runtime.Version()}
}

// describe returns the lines of version. The revision is there if the program was built in a clone.
func describe(info *debug.BuildInfo, gnet string) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	text := fmt.Sprintf("echo-heartbeat %s\n", cmp.Or(info.Main.Version, "unknown"))
	if revision := settings["vcs.revision"]; revision != "" {
		if settings["vcs.modified"] == "true" {
			revision += ", with changes"
		}
		text += fmt.Sprintf("revision %s\ncommitted %s\n", revision, settings["vcs.time"])
	}
	return text + fmt.Sprintf("go %s\ngnet %s\n", info.GoVersion, gnet)
}
