package server

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/reap"
)

// logTo returns a logger that writes text.
func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func TestAReportHasNewReapsOnly(t *testing.T) {
	var out strings.Builder
	r := reporter{log: logTo(&out)}
	var s idle.Stats
	r.logReaped(s)
	require.Empty(t, out.String(), "nothing was reaped")
	s.Reaped = idle.Counts{reap.ReadIdle: 5}
	s.Lateness = idle.LatenessStats{Count: 5, Sum: 5 * time.Second}
	r.logReaped(s)
	require.Contains(t, out.String(), `msg=reaped number=5 reasons.read_idle=5 connections=0 late=1s`)
	out.Reset()
	r.logReaped(s)
	require.Empty(t, out.String(), "nothing is new")
	s.Reaped = idle.Counts{reap.ReadIdle: 5, reap.Kicked: 1}
	s.Lateness = idle.LatenessStats{Count: 6, Sum: 8 * time.Second}
	for n := range uint64(2) {
		s.Observed = idle.Counts{reap.MaxAge: 2 * (n + 1)}
		r.logReaped(s)
	}
	require.Contains(t, out.String(), "msg=reaped number=1 reasons.kicked=1 connections=0 late=3s\n")
	require.Equal(t, 2, strings.Count(out.String(), `msg="would have reaped" number=2 reasons.max_age=2 connections=0`+"\n"))
}

// TestAReportSaysWhoRejected has connections that the Reaper refused, and others that had not got
// as far. They are logged after a second and at the end.
func TestAReportSaysWhoRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		a := new(admission)
		a.last.Store("too fast")
		var refused atomic.Uint64
		r := reporter{log: logTo(&out), admission: a, stats: func() idle.Stats { return idle.Stats{Refused: refused.Load()} }}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var running sync.WaitGroup
		running.Go(func() { r.run(ctx) })
		for n := range uint64(3) {
			a.byRate.Store(2 * (n + 1))
			refused.Store(3 * (n + 1))
			if n == 2 {
				end()
			}
			time.Sleep(rejectedInterval)
			synctest.Wait()
			require.Equal(t, int(n)+1, strings.Count(out.String(), `level=WARN msg="connections were rejected" number=2 last="too fast"`))
			require.Equal(t, int(n)+1, strings.Count(out.String(), `number=3 last="the limit of connections is reached, or the server drains"`))
		}
		running.Wait()
	})
}
