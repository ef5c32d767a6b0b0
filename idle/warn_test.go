package idle

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

func TestAWarningIsLoggedOnceASecond(t *testing.T) {
	var out bytes.Buffer
	hand := &handClock{at: mono.Time(time.Second)}
	cfg, err := Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))}.check(0)
	require.NoError(t, err)
	r := newReaper(&sink{}, cfg, hand.elapsed, realKernel)
	for range 5 {
		r.warn(&r.warnings.closing, "closing a connection", "reason", ReadIdle)
		r.warn(&r.warnings.keepalive, "setting keepalive")
	}
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="closing a connection" reason="read idle"`), "%s", &out)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="setting keepalive"`))
	hand.at = hand.at.Add(2 * time.Second)
	r.warn(&r.warnings.closing, "closing a connection")
	require.Equal(t, 2, strings.Count(out.String(), "closing a connection"))
}
