package logging

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestAMutedLoggerComesBack(t *testing.T) {
	var out syncbuf.Buffer
	log := plain(&out)
	quiet := Mute(log)
	quiet.Error("lost")
	require.Empty(t, out.String())
	loud, isMuted := Unmute(quiet)
	require.True(t, isMuted)
	require.Same(t, log, loud)
	for _, other := range []*slog.Logger{log, nil} {
		loud, isMuted = Unmute(other)
		require.False(t, isMuted)
		require.Same(t, other, loud)
	}
}
