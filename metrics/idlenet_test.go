package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

func TestAListenerOfPackageNetHasMetrics(t *testing.T) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute, MaxConnections: 7})
	require.NoError(t, err)
	defer ln.Close()
	sockets.Dial(t, "tcp", ln.Addr().String())
	accepted, err := ln.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	in := read(ln)
	require.Equal(t, 1, in.states["open"])
	require.Equal(t, 7, in.limit)
	require.Zero(t, in.unknown)
	require.EqualValues(t, 1, in.stats.Opened)
	problems, err := testutil.CollectAndLint(NewCollector(ln))
	require.NoError(t, err)
	require.Empty(t, problems)
}
