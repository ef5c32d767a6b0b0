package metrics

import (
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
)

func TestAListenerOfPackageNetHasMetrics(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute, MaxConnections: 7})
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
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
