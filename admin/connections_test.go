package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
)

type shownConns struct {
	Open        int         `json:"open"`
	Suspended   *bool       `json:"suspended"`
	Connections []shownConn `json:"connections"`
}

type shownCloseds struct {
	Closed []shownClosed `json:"closed"`
}

func TestConnectionsAreInTheRequestedOrder(t *testing.T) {
	t.Parallel()
	of := hour
	of.Tick = 10 * time.Millisecond
	s := newSite(t, 2, of, Config{Token: rightToken})
	var conns []net.Conn
	for _, message := range []string{"x", "hold", "output"} {
		c := s.connect(t, message)
		conns = append(conns, c)
		eventually(t, "the newest connection was heard some ticks ago", func() bool {
			all, err := s.handler.inspector.connections(t.Context(), "age", 10)
			require.NoError(t, err)
			return len(all) == len(conns) && all[len(all)-1].ReadIdle > 5*of.Tick.Seconds()
		})
	}
	_, err := conns[0].Write([]byte("x")) // the oldest connection sends last
	require.NoError(t, err)
	var all shownConns
	eventually(t, "the message has arrived", func() bool {
		all = decode[shownConns](t, s.do(t, "GET", "/api/connections", ""))
		return all.Connections[2].Remote == conns[0].LocalAddr().String()
	})
	require.Equal(t, 3, all.Open)
	require.Len(t, all.Connections, 3)
	for i, c := range all.Connections {
		require.NotNil(t, c.WriteIdle)
		require.NotNil(t, c.Sent)
		require.NotNil(t, c.Missed)
		require.Positive(t, c.Age)
		require.LessOrEqual(t, c.ReadIdle, c.Age+of.Tick.Seconds(), "to within a tick")
		require.Greater(t, c.Due, 0.0)
		require.LessOrEqual(t, c.Due, 3601.0)
		require.Positive(t, c.Received)
		require.Equal(t, s.id(t, conns[(i+1)%3]), c.ID)
	}
	require.Equal(t, "held", all.Connections[0].State)
	require.Equal(t, "open", all.Connections[2].State)

	oldest := decode[shownConns](t, s.do(t, "GET", "/api/connections?sort=age&limit=2", ""))
	require.Equal(t, 3, oldest.Open)
	require.Len(t, oldest.Connections, 2)
	require.Equal(t, conns[0].LocalAddr().String(), oldest.Connections[0].Remote)
	require.Equal(t, conns[1].LocalAddr().String(), oldest.Connections[1].Remote)

	most := decode[shownConns](t, s.do(t, "GET", "/api/connections?limit=1&sort=output", ""))
	require.Len(t, most.Connections, 1)
	require.Equal(t, conns[2].LocalAddr().String(), most.Connections[0].Remote)
	require.Positive(t, most.Connections[0].Output)
}

func TestListsWithoutConnectionsAreEmptyAndNotNull(t *testing.T) {
	h := newHandler(t, Config{Open: true})
	require.JSONEq(t, `{"open":0,"suspended":false,"suspended_for":[],"connections":[]}`, call(h, "GET", "/api/connections", "").body)
	require.JSONEq(t, `{"closed":[]}`, call(h, "GET", "/api/closed", "").body)
}

func TestTheDefaultLimitIsTwentyConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, hour, Config{Token: rightToken})
	for range 25 {
		s.connect(t, "")
	}
	for path, want := range map[string]int{"": 20, "?": 20, "?limit=25": 25, "?limit=1000": 25, "?sort=idle": 20, "?limit=1": 1} {
		got := decode[shownConns](t, s.do(t, "GET", "/api/connections"+path, ""))
		require.Equal(t, 25, got.Open)
		require.Len(t, got.Connections, want, path)
	}
}

func TestAnInvalidQueryIsRefused(t *testing.T) {
	h := newHandler(t, Config{Open: true})
	for query, want := range map[string]string{
		"limit=0": "limit", "limit=-1": "limit", "limit=1001": "limit", "limit=abc": "limit", "limit=1e9": "limit",
		"limit=": "limit", "limit": "limit",
		"limit=99999999999999999999": "limit", "limit=1.5": "limit", "limit=0x10": "limit", "limit=%31%30%30%31": "limit",
		"limit=5%00": "limit",
		"limit=1_0":  "limit", "limit=+5": "limit",
		"sort=name": "sort", "sort=": "sort", "sort=IDLE": "sort", "sort=idle%20": "sort", "sort=idle&sort=name": "sort",
		"order=idle": "order", "Limit=5": "Limit", "=": `""`, "limit=5&x": "x", "%zz": "query", "limit=%": "query",
		"limit=%e": "query", "limit=5;sort=age": "query",
		"limit=" + strings.Repeat("9", 1<<20): "limit", strings.Repeat("x", 1<<20): "xxx", "sort=" + strings.Repeat("%ff", 1<<18): "sort",
		"sort=" + strings.Repeat("\U0010ffff", 1<<16): "sort", strings.Repeat("x&", 1<<19): "",
		"limit=5&limit=6": "limit", "limit=abc&limit=6": "limit", "sort=age&sort=idle": "sort", "sort=name&sort=idle": "sort",
	} {
		r := httptest.NewRequest("GET", "/api/connections", nil)
		r.Host, r.URL.RawQuery = "localhost", query
		text := requireError(t, 400, callWith(h, r), "%.100s", query)
		require.Contains(t, text, want)
	}
}

func TestAKickEndsAConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, hour, Config{Token: rightToken})
	victim, other := s.connect(t, "x"), s.connect(t, "x")
	path := "/api/connections/" + s.id(t, victim) + "/kick"
	a := s.do(t, "POST", path, "")
	require.Equal(t, 204, a.status, a.body)
	require.Empty(t, a.body)
	requireEnd(t, victim)
	require.ErrorIs(t, s.reason(t, victim), reap.Kicked)
	gone := decode[shownCloseds](t, s.do(t, "GET", "/api/closed", "")).Closed
	require.Len(t, gone, 1)
	require.Equal(t, victim.LocalAddr().String(), gone[0].Remote)
	require.Equal(t, "kicked", gone[0].Reason)
	require.Contains(t, requireError(t, 404, s.do(t, "POST", path, "")), "gone")
	require.Len(t, decode[shownCloseds](t, s.do(t, "GET", "/api/closed", "")).Closed, 1)
	a = s.do(t, "POST", "/api/connections/"+s.id(t, other)+"/kick", "a body")
	require.Equal(t, 204, a.status, "the other one is still open, and the body is ignored: %s", a.body)
}

func TestAKickOfAnInvalidIDIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Token: rightToken})
	s.connect(t, "x")
	for _, id := range []string{
		"x", "1", "1-2", "1-2-3-4", "--", "-1-2-3", "1--3", "1-2-", "1-2-4294967296", "1-2-3%20", "%201-2-3", "1-2-0x3",
		"1-2-1e3", "1%2F2", "1-2-+3", "%00",
		"1-2-%EF%BC%93", strings.Repeat("9", 100_000), strings.Repeat("1-", 1000), "1-2-3%0d%0ax:y", "*", "all", "1-%2A-3",
	} {
		text := requireError(t, 400, s.do(t, "POST", "/api/connections/"+id+"/kick", ""), "%.40s", id)
		require.NotContains(t, text, "idle:")
	}
	for _, id := range []string{"0-0-0", "9-9-9", "1-4294967295-4294967295", "4294967295-1-1"} {
		requireError(t, 404, s.do(t, "POST", "/api/connections/"+id+"/kick", ""), id)
	}
	require.Equal(t, 1, s.handler.inspector.open())
}

func TestOneOfManyKicksOfAConnectionSucceeds(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, hour, Config{Token: rightToken})
	s.connect(t, "x") // keeps the loop alive
	s.connect(t, "x")
	for range 10 {
		victim := s.connect(t, "x")
		path := "/api/connections/" + s.id(t, victim) + "/kick"
		var kicked, late atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				switch call(s.handler, "POST", path, "").status {
				case 204:
					kicked.Add(1)
				case 404:
					late.Add(1)
				}
			})
		}
		all.Wait()
		require.Equal(t, int32(1), kicked.Load())
		require.Equal(t, int32(15), late.Load())
		requireEnd(t, victim)
	}
	require.Equal(t, uint64(10), s.reaper.Stats().Reaped[reap.Kicked])
}

func TestABlockedLoopIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Open: true, Token: rightToken})
	defer close(s.block)
	id := s.id(t, s.connect(t, "x"))
	s.connect(t, "b")
	eventually(t, "the loop is blocked", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := s.handler.inspector.connections(ctx, "age", 1)
		return err != nil
	})
	for _, e := range [][2]string{{"GET", "/api/connections"}, {"POST", "/api/connections/" + id + "/kick"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // shorter than loopTimeout
		defer cancel()
		r := newRequest(ctx, e[0], e[1], "")
		require.Contains(t, requireError(t, 503, callWith(s.handler, r), e[1]), "blocks")
	}
}

func TestTheClosedListHasReasonsAndIsNewestFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, idle.Config{ReadTimeout: time.Minute, FirstByteTimeout: 50 * time.Millisecond, KeepClosed: 3},
		Config{Token: rightToken})
	var silent []net.Conn
	for range 5 {
		silent = append(silent, sockets.Dial(t, "tcp", s.addr)) // it may be closed before it is seen
		requireEnd(t, silent[len(silent)-1])
		s.reason(t, silent[len(silent)-1])
	}
	all := decode[shownCloseds](t, s.do(t, "GET", "/api/closed", "")).Closed
	require.Len(t, all, 3, "KeepClosed")
	for i, c := range all {
		require.Equal(t, silent[4-i].LocalAddr().String(), c.Remote)
		require.Equal(t, "no first byte", c.Reason)
		require.Equal(t, 0.05, c.Limit)
		require.GreaterOrEqual(t, c.Lasted, 0.05)
		require.GreaterOrEqual(t, *c.Late, 0.0)
		require.GreaterOrEqual(t, *c.Age, 0.05)
		require.NotContains(t, c.Detail, "idle:")
		require.Contains(t, c.Detail, "50ms")
		at, err := time.Parse(time.RFC3339Nano, c.At)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, soon)
	}
}

// TestAListenerOfPackageNetIsShown shows, changes and closes connections of an idlenet.Listener.
func TestAListenerOfPackageNetIsShown(t *testing.T) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute, KeepClosed: 8})
	require.NoError(t, err)
	defer ln.Close()
	client := sockets.Dial(t, "tcp", ln.Addr().String())
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()

	h, err := New(Config{Reaper: ln, Token: rightToken, Open: true})
	require.NoError(t, err)
	list := decode[struct{ Connections []connection }](t, call(h, "GET", "/api/connections", ""))
	require.Len(t, list.Connections, 1)
	require.Equal(t, client.LocalAddr().String(), list.Connections[0].Remote)

	a := call(h, "POST", "/api/timeouts", `{"read-timeout":"30s"}`)
	require.Equal(t, 200, a.status, a.body)
	require.Equal(t, 30*time.Second, ln.Config().ReadTimeout)
	text := requireError(t, 400, call(h, "POST", "/api/timeouts", `{"read-timeout":"-1s"}`))
	require.Contains(t, text, "set a positive duration")

	a = call(h, "POST", "/api/connections/"+string(list.Connections[0].ID)+"/kick", "")
	require.Equal(t, 204, a.status, a.body)
	require.ErrorIs(t, ln.Reason(c), reap.Kicked)
	found, blocked := h.inspectRings(t.Context())
	require.False(t, blocked)
	require.NotEmpty(t, found)
	f := h.makeFrame(t.Context(), &frameState{})
	require.Nil(t, f.Reads, "package idlenet sees no reads")
	require.NoError(t, ln.Drain(time.Minute, time.Minute))
	require.Equal(t, "not ready: draining\n", call(h, "GET", "/readyz", "").body, "without Config.Status")
	require.Empty(t, f.Pressure, "no resource has a limit")
	_, err = ln.Admit(client)
	require.ErrorIs(t, err, idlenet.ErrRefused)
	require.EqualValues(t, 1, h.makeFrame(t.Context(), &frameState{}).Rejected)
}

// Readers in other time zones compare these times as text.
func TestTimesAreInUTC(t *testing.T) {
	there := time.FixedZone("there", 2*60*60)
	one := newClosed([]idle.Closed{{At: time.Date(2026, 11, 22, 2, 10, 0, 0, there), Err: &idle.ReapError{Reason: reap.Kicked}}})[0]
	require.Equal(t, "2026-11-22T00:10:00Z", one.At.Format(time.RFC3339Nano), "as docs/run.md says")
	require.Empty(t, one.Remote, "an address may be missing")
	require.NotEmpty(t, fmt.Sprint(one.Reason))
}

// A valued is a Reaper with a value in each field that is 0 for most servers.
type valued struct{ reap.Reaper }

func (valued) Connections() int { return 1 }

func (valued) Inspect(context.Context, reap.Query) (reap.Inspection, error) {
	return reap.Inspection{
		Connections: []reap.ConnInfo{{WriteIdle: time.Second, Sent: 2, Unwritable: true, Missed: 3}, {}},
		Closed:      []reap.Closed{{Err: &reap.Error{Late: 4 * time.Second}}},
	}, nil
}

func (valued) Stats() reap.Stats {
	return reap.Stats{
		SparedUnread: 1, Outages: 2, OutageTime: 3 * time.Second, Postponed: 4, LoopDelay: 5 * time.Second, ClockDelay: 6 * time.Second,
		Reaped: reap.Counts{reap.Kicked: 7}, Lateness: reap.LatenessStats{Count: 2, Sum: 16 * time.Second, Max: 9 * time.Second},
	}
}

func TestAFrameHasAllValues(t *testing.T) {
	h := &Handler{cfg: Config{Status: func() Status { return Status{} }}, reaper: valued{}, inspector: inspector{valued{}}}
	text, err := json.Marshal(h.makeFrame(t.Context(), &frameState{}))
	require.NoError(t, err)
	for _, part := range []string{
		`"spared_unread":1,"outages":2,"outage_seconds":3,"postponed":4,`, `"loop_delay_seconds":5,"clock_delay_seconds":6,`,
		`"reaped":{"kicked":7},"lateness":{"count":2,"mean_seconds":8,"max_seconds":9},`, `"write_idle_seconds":1,`, `"sent_bytes":2,`,
		`"unwritable":true,"missed_heartbeats":3}`, `"late_seconds":4}`,
	} {
		require.Equal(t, 1, strings.Count(string(text), part), "%s in %s", part, text)
	}
}
