package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	// Keeps the module with the schema in go.mod; the package is empty.
	"github.com/stretchr/testify/require"
	_ "k8s.io/kubernetes/pkg/generated"
)

// writeSchemas makes a JSON schema for each kind of Kubernetes from the OpenAPI document in its
// module, and returns the folder. The version of k8s.io/kubernetes in go.mod is the oldest release
// that the manifests support.
func writeSchemas(t *testing.T) string {
	t.Helper()
	module := strings.TrimSpace(output(t, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
	b, err := os.ReadFile(filepath.Join(module, "api", "openapi-spec", "swagger.json"))
	require.NoError(t, err)
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	require.NoError(t, json.Unmarshal(b, &document))
	dir := t.TempDir()
	write := func(name string, schema any) {
		b, err := json.Marshal(schema)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	for name, definition := range document.Definitions {
		if definition["format"] == "int-or-string" {
			definition["type"] = []string{"integer", "string"}
			delete(definition, "format")
		}
		if _, more := definition["additionalProperties"]; definition["properties"] != nil && !more {
			definition["additionalProperties"] = false // an unknown field is a mistake
		}
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			kind := kind.(map[string]any)
			of := []string{kind["kind"].(string)}
			// kubeconform uses these names.
			if group, _, _ := strings.Cut(kind["group"].(string), "."); group != "" {
				of = append(of, group)
			}
			of = append(of, kind["version"].(string))
			write(strings.ToLower(strings.Join(of, "-"))+".json", map[string]any{"$ref": "definitions.json#/definitions/" + name})
		}
	}
	write("definitions.json", map[string]any{"definitions": document.Definitions})
	return dir
}
