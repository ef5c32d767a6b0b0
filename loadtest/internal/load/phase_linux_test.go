package load

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnInstantBelongsToOnePhase(t *testing.T) {
	p := phases{list: []phase{{"open", 0}, {"hold", 100}, {"", 200}}}
	for at, want := range map[int64]string{-1: "open", 0: "open", 99: "open", 100: "hold", 199: "hold", 200: "", 1000: ""} {
		require.Equal(t, want, p.at(at), at)
	}
	require.Empty(t, p.present())
}
