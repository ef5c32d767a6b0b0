package idle

import (
	"context"
	"errors"
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

// TestFunctionsOfTheUserMayClose has functions that close their connection, or another one, while
// the Reaper is about to do something with theirs.
func TestFunctionsOfTheUserMayClose(t *testing.T) {
	ping := func(gnet.Conn) []byte { return nil }
	goodbye := func(text string) func(cfg *Config, e *echo, end func(gnet.Conn)) {
		return func(cfg *Config, _ *echo, end func(gnet.Conn)) {
			cfg.ReadTimeout = time.Second
			cfg.Goodbye = func(c gnet.Conn, _ *ReapError) []byte { end(c); return []byte(text) }
		}
	}
	for name, tc := range map[string]struct {
		set     func(cfg *Config, e *echo, end func(gnet.Conn))
		another bool // is closed
		reap    bool // OnClose gets the reason
	}{
		"Goodbye":            {set: goodbye("bye"), reap: true},
		"Goodbye of another": {set: goodbye(""), reap: true, another: true},
		"OnIdle": {set: func(cfg *Config, _ *echo, end func(gnet.Conn)) {
			cfg.ReadTimeout = time.Second
			cfg.OnIdle = func(c gnet.Conn, _ Event) gnet.Action { end(c); return gnet.Close }
			cfg.Goodbye = func(gnet.Conn, *ReapError) []byte { t.Error("a goodbye after OnClose"); return nil }
		}},
		"Ping": {set: func(cfg *Config, _ *echo, end func(gnet.Conn)) {
			cfg.Heartbeat = Heartbeat{Interval: time.Second, Ping: func(c gnet.Conn) []byte { end(c); return []byte("PING") }}
		}},
		"IsPong": {set: func(cfg *Config, e *echo, end func(gnet.Conn)) {
			cfg.Heartbeat = Heartbeat{Interval: time.Minute, Ping: ping, IsPong: func(c gnet.Conn) bool { end(c); return true }}
			e.traffic = func(gnet.Conn) gnet.Action { t.Error("OnTraffic after OnClose"); return gnet.None }
		}},
		"OnTraffic": {set: func(cfg *Config, e *echo, end func(gnet.Conn)) {
			cfg.ReadTimeout = time.Minute
			e.traffic = func(c gnet.Conn) gnet.Action { end(c); return gnet.None }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e, cfg := newEcho(), Config{OutageGrace: -1}
			var s *handSite
			var conns []*scriptedConn
			calls := 0
			tc.set(&cfg, e, func(c gnet.Conn) {
				if calls++; tc.another {
					c = conns[1]
				}
				_ = s.el.Close(c)
			})
			s = newHandSite(t, e, cfg)
			conns = s.open(2)
			handle(s.Reaper, conns[1]).Exempt(true)
			if name == "IsPong" || name == "OnTraffic" {
				s.receive(conns[0])
				require.EqualValues(t, 1, s.Stats().Reads, "the last message counts")
			}
			s.pass(t, 5*time.Second)
			require.Equal(t, 1, calls)
			last := e.reasons()[len(e.reasons())-1]
			require.Equal(t, tc.reap, errors.Is(last, reap.ReadIdle), last)
			if tc.another {
				require.NoError(t, e.reasons()[0], "the reason is of the other connection")
			} else {
				require.Len(t, e.reasons(), 1)
			}
		})
	}
}

func TestNoGoodbyeBeforeAReset(t *testing.T) {
	cfg := Config{MaxAge: time.Minute, MaxAgeGrace: time.Minute, Reset: []Reason{reap.MaxAge}}
	cfg.Goodbye = func(gnet.Conn, *ReapError) []byte { t.Error("a connection that is reset gets no goodbye"); return nil }
	s := newHandSite(t, &reader{}, cfg)
	s.open(1)
	s.pass(t, 3*time.Minute)
	require.EqualValues(t, 1, s.Stats().Reaped[reap.MaxAge])
}

// watched returns what the only loop of a site keeps about a connection.
func (s *handSite) watched(c gnet.Conn) (l *loop, r *conntable.Record, id uint32, st *conn) {
	l = s.registry.Load().loops[0]
	r, id = l.table.Find(key(c))
	return l, r, id, l.At(id)
}

// kick does on the loop what Reaper.Kick does.
func kick(l *loop, id uint32, s *conn) (found bool) {
	_ = l.Watcher.Kick(context.Background(), l.ID(id, s), func(_, number, tag uint32) (bool, error) {
		found = l.Kick(number, tag)
		return found, nil
	})
	return found
}

// TestAGoodbyeForEachReason kicks a connection in the grace of its maximum age.
func TestAGoodbyeForEachReason(t *testing.T) {
	var said []Reason
	s := newHandSite(t, &reader{}, Config{MaxAge: time.Minute, MaxAgeGrace: time.Minute, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		said = append(said, reason.Reason)
		return nil
	}})
	c := s.open(1)[0]
	s.pass(t, 70*time.Second) // with jitter
	require.Equal(t, []Reason{reap.MaxAge}, said)
	l, _, id, state := s.watched(c)
	require.True(t, kick(l, id, state))
	require.Equal(t, []Reason{reap.MaxAge, reap.Kicked}, said)
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
	require.EqualValues(t, 1, s.Stats().SparedUnread)
	l, r, _, _ := s.watched(c)
	stamp := s.watch.Clock.StampAt(s.last.Add(-ago + s.answer.Step))
	require.Equal(t, stamp.Short(), r.Heard)
	require.EqualValues(t, stamp, l.heardAt.Load())
}
