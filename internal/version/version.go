// Package version tells the versions of the modules that a program was built with.
package version

import "runtime/debug"

// Modules with a version in metrics and on the page.
const (
	Idlewheel = "github.com/idlewheel/idlewheel"
	Gnet      = "github.com/panjf2000/gnet/v2"
)

const unknown = "unknown"

// Of returns the version of a module that the program was built with, or of its replacement. It
// returns "unknown" if the program has no such module, or was built without module information.
func Of(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return find(info, module)
}

func find(info *debug.BuildInfo, module string) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			if m.Replace != nil {
				m = m.Replace
			}
			return m.Version
		}
	}
	return unknown
}
