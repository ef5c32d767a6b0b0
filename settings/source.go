package settings

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/configtable"
)

// Names returns the names of all settings of [idle.Config], in the order of the documentation.
func Names() []string { return configtable.Idle.Names() }

// NetNames returns the names of all settings of [idlenet.Config], in the order of the
// documentation.
func NetNames() []string { return configtable.Net.Names() }

// A Source reads settings from flags and from a file. C is the Config that has them. Not safe for
// concurrent use. While a [Watcher] runs, neither File nor the flags may change.
type Source[C idle.Config | idlenet.Config] struct {
	// File is the path of the file of limits. If empty, the flags are the only source.
	File string

	table configtable.Table // the settings of the Source
	flags C
}

// New returns a Source and adds a flag for each setting to set. The defaults of the flags are the
// values in defaults. If names are given, only these settings become flags, and only these may be
// in the file. New panics if a name is not a setting of C, or if the FlagSet has a flag of that
// name.
func New[C idle.Config | idlenet.Config](set *flag.FlagSet, defaults C, names ...string) *Source[C] {
	s := &Source[C]{table: configtable.Idle, flags: defaults}
	if _, ok := any(defaults).(idlenet.Config); ok {
		s.table = configtable.Net
	}
	for _, name := range names {
		if !slices.Contains(s.table.Names(), name) {
			panic(fmt.Sprintf("settings: there is no setting %q", name))
		}
	}
	if len(names) > 0 {
		s.table = slices.DeleteFunc(slices.Clone(s.table), func(row configtable.Setting) bool { return !slices.Contains(names, row.Name) })
	}
	for _, row := range s.table {
		row.AddFlag(set, &s.flags)
	}
	return s
}

// Load sets the fields of cfg to the values of the flags, and of the file if there is one. Other
// fields of cfg stay. If Load returns an error, cfg is unchanged. It gives up after 5 seconds, for
// example when the file is on a network file system that does not answer.
func (s *Source[C]) Load(cfg *C) error {
	values, err := bounded(context.Background(), s.File, s.read)
	if err != nil {
		return err
	}
	s.set(cfg, values)
	return nil
}

// read returns a Config with the values of the flags and of the file.
func (s *Source[C]) read() (C, error) {
	values := s.flags
	if s.File == "" {
		return values, nil
	}
	return values, readFile(s.File, s.table, &values)
}

// set copies the settings of the Source from one Config to another.
func (s *Source[C]) set(cfg *C, from C) {
	for _, row := range s.table {
		row.Of(cfg).Set(row.Of(&from))
	}
}

// Describe returns the settings of the Source that are not zero, as in "read-timeout 1m0s, tick
// 100ms".
func (s *Source[C]) Describe(cfg C) string {
	var parts []string
	for _, row := range s.table {
		if v := row.Of(&cfg); !v.IsZero() {
			parts = append(parts, fmt.Sprintf("%s %v", row.Name, v))
		}
	}
	return strings.Join(parts, ", ")
}
