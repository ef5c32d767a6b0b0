package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/loadtest/internal/path"
	"github.com/idlewheel/idlewheel/loadtest/internal/testserver"
	"github.com/idlewheel/idlewheel/loadtest/internal/witness"
)

func TestWitnessFailsForAServerThatDoesNotRead(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := testserver.Serve(t, func(c net.Conn) { time.Sleep(500 * time.Millisecond) })
		for range 5 {
			c := sockets.Dial(t, "tcp", addr)
			_, err := io.WriteString(c, "hello")
			require.NoError(t, err)
		}
		_, port, _ := strings.Cut(addr, ":")
		var out, errs syncbuf.Buffer
		code := execute(t.Context(), strings.Fields("witness --every 50ms --for 1s --out - --port "+port), &out, &errs)
		require.Equal(t, exitFailed, code, "%s", &errs)
		var r witness.Report
		require.NoError(t, json.Unmarshal([]byte(out.String()), &r))
		require.Equal(t, 5, r.Verdicts[witness.AliveUnread])
		require.EqualValues(t, 5, r.Closed[0].Unread)
		require.Contains(t, errs.String(), "unread bytes waited 5")
		require.Contains(t, errs.String(), "the server closed 5 connections while they were alive, and kept 0 dead ones")
	})
}

func TestWitnessOfNothing(t *testing.T) {
	var out, errs syncbuf.Buffer
	require.Equal(t, exitCannot, execute(t.Context(), strings.Fields("witness --port 1"), &out, &errs))
	require.Contains(t, errs.String(), "no socket listens there")
	require.Equal(t, exitUsage, execute(t.Context(), strings.Fields(fmt.Sprintf("witness --pid %d", 1<<30)), &out, &errs))
	require.Contains(t, errs.String(), "no such file or directory")
}

func TestPathToAServerWithTimeout(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := testserver.Serve(t, testserver.Reap(700*time.Millisecond, ""))
		file := filepath.Join(t.TempDir(), "path.json")
		var out, errs syncbuf.Buffer
		code := execute(t.Context(), strings.Fields("path --from 500ms --to 3s --out "+file+" --target "+addr), &out, &errs)
		require.Zero(t, code, "%s", &errs)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		var r path.Report
		require.NoError(t, json.Unmarshal(b, &r))
		require.True(t, r.Server)
		require.InDelta(t, 700*time.Millisecond, r.Failed, float64(190*time.Millisecond))
		require.Contains(t, out.String(), "the server, or a proxy in its place, ended the connection")
		require.Contains(t, errs.String(), "500ms silent: survived")
	})
}
