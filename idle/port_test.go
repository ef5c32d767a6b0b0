package idle

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// TestBytesWithoutADateAreWarnedOf has a kernel that dates bytes, and one that does not.
func TestBytesWithoutADateAreWarnedOf(t *testing.T) {
	for _, dated := range []bool{true, false} {
		var log syncbuf.Buffer
		s := newHandSite(t, &reader{}, Config{AllTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.answer.Dated = dated
		s.open(1)
		s.pass(t, 2*time.Second)
		flushLog(s.Reaper)
		require.Equal(t, !dated, strings.Contains(log.String(), "the kernel does not report when"), &log)
	}
}

// TestALastReadCounts has an IsPong that closes the connection.
func TestALastReadCounts(t *testing.T) {
	var s *handSite
	closes := func(c gnet.Conn) bool { _ = s.el.Close(c); return true }
	ping := func(gnet.Conn) []byte { return nil }
	s = newHandSite(t, &reader{}, Config{Heartbeat: Heartbeat{Interval: time.Minute, Ping: ping, IsPong: closes}})
	s.receive(s.open(1)[0])
	require.EqualValues(t, 1, s.Stats().Reads)
}

// TestAConnectionThatOnIdleHasClosedIsNotReaped has an OnIdle that closes and also returns Close.
func TestAConnectionThatOnIdleHasClosedIsNotReaped(t *testing.T) {
	var s *handSite
	closes := func(c gnet.Conn, _ Event) gnet.Action {
		_ = s.el.Close(c)
		return gnet.Close
	}
	said := 0
	goodbye := func(gnet.Conn, *ReapError) []byte { said++; return nil }
	s = newHandSite(t, newEcho(), Config{ReadTimeout: time.Second, OnIdle: closes, Goodbye: goodbye, OutageGrace: -1})
	s.open(1)
	s.pass(t, 5*time.Second)
	require.EqualValues(t, 1, s.Stats().Closed)
	require.Zero(t, s.Stats().Reaped[reap.ReadIdle])
	require.Zero(t, said)
}

// watched returns what the only loop of a site keeps about a connection.
func (s *handSite) watched(c gnet.Conn) (l *loop, r *conntable.Record, id uint32, st *conn) {
	l = s.registry.Load().loops[0]
	r, id = l.table.Find(key(c))
	return l, r, id, l.At(id)
}

// TestTheLastReadIsKnownForever checks it after the clock has forgotten the time of its stamp.
func TestTheLastReadIsKnownForever(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: 10 * time.Second, OutageGrace: -1})
	c := s.open(1)[0]
	handle(s.Reaper, c).Exempt(true)
	s.pass(t, time.Second)
	heard := s.at
	s.receive(c)
	l, _, id, st := s.watched(c)
	require.Equal(t, s.at, l.Facts(id, st, s.at).Heard.To, "the bound of the current stamp is now")
	s.pass(t, s.watch.Clock.Tick())
	for range 100 { // judged every 5 s
		l.Facts(id, st, s.at)
		s.pass(t, 5*time.Second)
	}
	when := l.Facts(id, st, s.at).Heard
	require.LessOrEqual(t, when.From, heard)
	require.GreaterOrEqual(t, when.To, heard)
	require.Less(t, when.To, heard.Add(3*s.watch.Clock.Tick()))
}

// TestAReadFoundByTheKernelIsKept checks the stamp of the connection and that of its loop, which
// the Monitor reads.
func TestAReadFoundByTheKernelIsKept(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: 10 * time.Second, OutageGrace: -1})
	c := s.open(1)[0]
	const ago = 320 * time.Millisecond
	s.answer = verdict.Evidence{Dated: true, Received: 1, Silent: ago, Step: 5 * time.Millisecond, Queued: -1}
	s.pass(t, 10*time.Second+3*s.watch.Clock.Tick())
	require.Zero(t, s.Stats().Closed)
	require.EqualValues(t, 1, s.Stats().SavedByKernel)
	l, r, _, _ := s.watched(c)
	stamp := s.watch.Clock.StampAt(s.last.Add(-ago + s.answer.Step))
	require.Equal(t, stamp.Short(), r.Heard)
	require.EqualValues(t, stamp, l.heardAt.Load())
}
