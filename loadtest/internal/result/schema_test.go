package result

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fields returns the paths of all JSON fields of a type: [] follows an array, and {} an object with
// any keys.
func fields(of reflect.Type, path string) (paths []string) {
	switch of.Kind() {
	case reflect.Pointer:
		return fields(of.Elem(), path)
	case reflect.Slice:
		return fields(of.Elem(), path+"[]")
	case reflect.Map:
		return fields(of.Elem(), path+"{}")
	case reflect.Struct:
		if of == reflect.TypeFor[Histogram]() {
			if path != "groups[].connect" { // described once
				return []string{path}
			}
			of = reflect.TypeFor[written]()
		} else if reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]()) {
			return []string{path} // a time
		}
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			// An embedded field has no name.
			paths = append(paths, fields(field.Type, strings.Trim(path+"."+name, "."))...)
		}
		return paths
	}
	return []string{path}
}

func TestSchemaIsDescribed(t *testing.T) {
	text, err := os.ReadFile("SCHEMA.md")
	require.NoError(t, err)
	var described []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		described = append(described, m[1])
	}
	want := fields(reflect.TypeFor[Result](), "")
	slices.Sort(want)
	require.True(t, slices.IsSorted(described), "the table is sorted")
	require.Equal(t, want, described)
	require.Contains(t, string(text), "version 2")
}
