package settings

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
)

// Names returns the names of all settings, in the order of the documentation.
func Names() (names []string) {
	for _, s := range configtable.Idle {
		names = append(names, s.Name)
	}
	return names
}

// A Source reads settings from flags and from a file. Not safe for concurrent use. While a
// [Watcher] runs, neither File nor the flags may change.
type Source struct {
	// File is the path of the file of limits. If empty, the flags are the only source.
	File string

	names []string
	flags idle.Config
}

// New returns a Source and adds a flag for each setting to set. The defaults of the flags are the
// values in defaults. If names are given, only these settings become flags, and only these may be
// in the file. New panics if a name is not a setting, or if the FlagSet has a flag of that name.
func New(set *flag.FlagSet, defaults idle.Config, names ...string) *Source {
	s := &Source{names: names, flags: defaults}
	if len(names) == 0 {
		s.names = Names()
	}
	for _, name := range s.names {
		if !slices.Contains(Names(), name) {
			panic(fmt.Sprintf("settings: there is no setting %q", name))
		}
	}
	for row := range s.rows() {
		row.AddFlag(set, &s.flags)
	}
	return s
}

// rows yields the settings of the Source.
func (s *Source) rows() func(yield func(configtable.Setting) bool) {
	return func(yield func(configtable.Setting) bool) {
		for _, row := range configtable.Idle {
			if slices.Contains(s.names, row.Name) && !yield(row) {
				return
			}
		}
	}
}

// Load sets the fields of cfg to the values of the flags, and of the file if there is one. Other
// fields of cfg stay. If Load returns an error, cfg is unchanged. It gives up after 5 seconds, for
// example when the file is on a network file system that does not answer.
func (s *Source) Load(cfg *idle.Config) error {
	values, err := bounded(context.Background(), s.File, s.read)
	if err != nil {
		return err
	}
	s.set(cfg, values)
	return nil
}

// read returns a Config with the values of the flags and of the file.
func (s *Source) read() (idle.Config, error) {
	values := s.flags
	if s.File == "" {
		return values, nil
	}
	return values, s.readFile(&values)
}

// set copies the settings of the Source from one Config to another.
func (s *Source) set(cfg *idle.Config, from idle.Config) {
	for row := range s.rows() {
		row.Of(cfg).Set(row.Of(&from))
	}
}

// Describe returns the settings of the Source that are not zero, as in "read-timeout 1m0s, tick
// 100ms".
func (s *Source) Describe(cfg idle.Config) string {
	var parts []string
	for row := range s.rows() {
		if v := row.Of(&cfg); !v.IsZero() {
			parts = append(parts, fmt.Sprintf("%s %v", row.Name, v))
		}
	}
	return strings.Join(parts, ", ")
}
