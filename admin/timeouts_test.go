package admin

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin/page"
	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

func TestANewTimeoutAppliesToOpenConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, idle.Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Hour, Tick: 10 * time.Millisecond,
		KeepClosed: 9}, Config{Token: rightToken})
	c := s.connect(t, "x")
	began := time.Now()
	a := s.do(t, "POST", "/api/timeouts", `{"read-timeout":"300ms"}`, "Content-Type", "application/json")
	got := decode[map[string]any](t, a)
	require.Equal(t, decode[map[string]any](t, s.do(t, "GET", "/api/config", "")), got, "the answer is that of /api/config")
	require.Equal(t, "300ms", got["limits"].(map[string]any)["read-timeout"])
	requireEnd(t, c)
	require.GreaterOrEqual(t, time.Since(began), 250*time.Millisecond, "not early, except for the time since its last message")
	require.ErrorIs(t, s.reason(t, c), reap.ReadIdle)
	gone := decode[shownCloseds](t, s.do(t, "GET", "/api/closed", "")).Closed
	require.Equal(t, 0.3, gone[0].Limit)
	require.GreaterOrEqual(t, gone[0].Lasted, 0.3, "never early")
}

// TestOmittedTimeoutsStay changes one timeout at a time.
func TestOmittedTimeoutsStay(t *testing.T) {
	h := newHandler(t, Config{Token: rightToken})
	all := map[string]any{}
	for i, name := range []string{
		"read-timeout", "write-timeout", "all-timeout", "first-byte-timeout", "handshake-timeout", "write-stall-timeout",
		"max-age", "max-age-grace", "outage-grace",
	} {
		want := h.reaper.Limits()
		all[name] = (time.Duration(i+1) * time.Hour).String()
		want[name] = all[name]
		decode[any](t, call(h, "POST", "/api/timeouts", fmt.Sprintf(`{%q:%q}`, name, all[name])))
		require.Equal(t, want, h.reaper.Limits(), name)
	}
	a := call(h, "POST", "/api/timeouts", " \n{\"max-age-grace\":\"0s\",\"max-age\":\"0\"}\n ")
	require.Equal(t, 200, a.status, a.body)
	want := h.reaper.Limits()
	maps.DeleteFunc(all, func(name string, _ any) bool { return strings.HasPrefix(name, "max-age") })
	for name, value := range all {
		require.Equal(t, value, want[name])
	}
	require.Equal(t, "0s", want["max-age"])
	require.Equal(t, "0s", want["max-age-grace"])
}

// TestTheOutageGraceMayBeNegative turns self-preservation off and on again at run time.
func TestTheOutageGraceMayBeNegative(t *testing.T) {
	h := newHandler(t, Config{Token: rightToken})
	for _, grace := range []time.Duration{-time.Second, 30 * time.Second, 0} {
		a := call(h, "POST", "/api/timeouts", fmt.Sprintf(`{"outage-grace":%q}`, grace))
		require.Equal(t, 200, a.status, a.body)
		require.Equal(t, grace, idleReaper(h.reaper).Config().OutageGrace)
		require.Equal(t, grace.String(), h.reaper.Limits()["outage-grace"])
	}
	text := requireError(t, 400, call(h, "POST", "/api/timeouts", `{"outage-grace":"99999h"}`))
	require.Equal(t, "outage-grace is 99999h0m0s: set at most ten years", text)
}

// invalidBodies are refused. The error contains want.
var invalidBodies = []struct{ name, body, want string }{
	{"negative", `{"read-timeout":"-5s"}`, "read-timeout"},
	{"too small", `{"write-timeout":"1ns"}`, "write-timeout"},
	{"more than ten years", `{"max-age":"200000h"}`, "max-age"},
	{"more than a duration has", `{"all-timeout":"99999999999h"}`, "all-timeout"},
	{"a word", `{"read-timeout":"soon"}`, "read-timeout"},
	{"nothing", `{"read-timeout":""}`, "read-timeout"},
	{"null", `{"read-timeout":null}`, "read-timeout"},
	{"no unit", `{"read-timeout":"30"}`, "read-timeout"},
	{"a long text", `{"read-timeout":"` + strings.Repeat("9", 3000) + `"}`, "read-timeout"},
	{"a good one and a bad one", `{"read-timeout":"5s","write-timeout":"bad"}`, "write-timeout"},
	{"a good one and an unknown one", `{"read-timeout":"5s","tick":"1s"}`, "tick"},
	{"an unknown one", `{"heartbeat":"5s"}`, "heartbeat"},
	{"another case", `{"Read-Timeout":"5s"}`, "Read-Timeout"},
	{"the name of a field", `{"ReadTimeout":"5s"}`, "ReadTimeout"},
	{"an empty name", `{"":"5s"}`, `""`},
	{"a long name", `{"` + strings.Repeat("x", 3000) + `":"5s"}`, "xxx"},
	{"an empty object", `{}`, "read-timeout"},
	{"null alone", `null`, "read-timeout"},
	{"no body", ``, "read-timeout"},
	{"spaces", `   `, "read-timeout"},
	{"an array", `[{"read-timeout":"5s"}]`, "read-timeout"},
	{"a string", `"read-timeout"`, "read-timeout"},
	{"a form", `read-timeout=5s`, "read-timeout"},
	{"half an object", `{"read-timeout":"5s"`, "read-timeout"},
	{"deep nesting", strings.Repeat(`{"read-timeout":`, 200), "read-timeout"},
	{"deep arrays", strings.Repeat(`[`, 4000), "read-timeout"},
	{"another object after it", `{"read-timeout":"5s"}{"read-timeout":"6s"}`, "read-timeout"},
	{"a word after it", `{"read-timeout":"5s"} x`, "read-timeout"},
	{"a megabyte", `{"read-timeout":"` + strings.Repeat(" ", 1<<20) + `5s"}`, "read-timeout"},
	{"a megabyte before it", strings.Repeat(" ", 1<<20) + `{"read-timeout":"5s"}`, "read-timeout"},
	{"a name twice", `{"read-timeout":"5s","write-timeout":"6s","read-timeout":"7s"}`, `"read-timeout" is given twice`},
	{"a name twice, escaped", `{"read-timeout":"5s","read\u002dtimeout":"5s"}`, `"read-timeout" is given twice`},
	{"an unknown name twice", `{"x":{"y":[1]},"x":2}`, `"x" is given twice`},
	{"not UTF-8", "{\"read-timeout\":\"5s\xff\"}", "read-timeout"},
	{"a brace after it", `{"read-timeout":"5s"}}`, "read-timeout"},
	{"a bracket after it", `{"read-timeout":"5s"}]`, "read-timeout"},
	{"a brace and a word after it", `{"read-timeout":"5s"}}garbage`, "read-timeout"},
	{"a bracket and an object after it", `{"read-timeout":"5s"} ]{"read-timeout":"6s"}`, "read-timeout"},
	{"a megabyte after it", `{"read-timeout":"5s"}` + strings.Repeat(" ", 1<<20), "read-timeout"},
	{"a word behind many spaces", `{"read-timeout":"5s"}` + strings.Repeat(" ", 5000) + "garbage", "read-timeout"},
	{"a number", `{"write-timeout":30}`, `write-timeout is 30: write a duration`},
	{"a truth value", `{"write-timeout":true}`, `write-timeout is true: write a duration`},
	{"an array as the value", `{"write-timeout":[]}`, `write-timeout is []: write a duration`},
	{"an object as the value", `{"write-timeout":{"s":30}}`, `write-timeout is {"s":30}: write a duration`},
	{"a large number", `{"write-timeout":1e400}`, `write-timeout is 1e400: write a duration`},
	{"a number that is no timeout", `{"output-limit":"3"}`, `"output-limit" cannot be changed here: take read-timeout`},
	{"the same without quotes", `{"output-limit":3}`, `"output-limit" cannot be changed here: take read-timeout`},
	{"the same beside a timeout", `{"read-timeout":"5s","output-limit":3}`, `"output-limit" cannot be changed here: take read-timeout`},
	{"less than a tick", `{"read-timeout":"50ms"}`, "read-timeout"},
	{"too many ticks", `{"read-timeout":"80000h"}`, "read-timeout"},
	{"no limit is left", `{"read-timeout":"0s"}`, "read-timeout"},
	{"a grace without an age", `{"max-age-grace":"5s"}`, "max-age-grace"},
	{"two at once", `{"read-timeout":"-5s","write-timeout":"-6s"}`, "write-timeout"},
}

// TestInvalidTimeoutsChangeNothing also checks that errors have the names of flags. Clients of the
// endpoint do not know the fields of idle.Config.
func TestInvalidTimeoutsChangeNothing(t *testing.T) {
	var log syncbuf.Buffer
	h := newHandler(t, Config{Token: rightToken, Logger: newLogger(&log)})
	before := h.reaper.Limits()
	for _, c := range invalidBodies {
		text := requireError(t, 400, call(h, "POST", "/api/timeouts", c.body), c.name)
		require.Contains(t, text, c.want, c.name)
		for _, inner := range []string{"idle:", "Config.", "WriteTimeout", "MaxAge", "\n"} {
			require.NotContains(t, text, inner, c.name)
		}
		require.Equal(t, before, h.reaper.Limits(), c.name)
	}
	require.Empty(t, log.String())
}

// A truncated body may be a part of a different request.
func TestATruncatedBodyChangesNothing(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	s := newSite(t, 1, hour, Config{Token: rightToken, Logger: newLogger(&log)})
	c := s.stall(t, `{"read-timeout":"5s"} `)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		defer resp.Body.Close()
		require.Equal(t, 400, resp.StatusCode)
	}
	require.Equal(t, time.Hour, s.reaper.Config().ReadTimeout)
	require.Empty(t, log.String())
}

// stall sends the header of a request and the beginning of its body.
func (s *site) stall(t testing.TB, begin string) net.Conn {
	t.Helper()
	c := sockets.Dial(t, "tcp", strings.TrimPrefix(s.url, "http://"))
	_, err := fmt.Fprintf(c,
		"POST /api/timeouts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n%s", rightToken, begin)
	require.NoError(t, err)
	return c
}

func TestAStalledClientDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Token: rightToken})
	for range 20 {
		s.stall(t, `{"read-timeout":"5`)
	}
	require.Equal(t, 200, s.do(t, "POST", "/api/timeouts", `{"write-timeout":"7s"}`).status)
	require.Equal(t, time.Hour, s.reaper.Config().ReadTimeout)
	require.Equal(t, 7*time.Second, s.reaper.Config().WriteTimeout)
}

// TestThePageHasAFieldForEachTimeoutOfAConnection compares the form of the page with the table of
// settings. TestThePageHasAFieldForEachIdleTimeout has no field for other limits that a connection
// can have of its own.
func TestThePageHasAFieldForEachIdleTimeout(t *testing.T) {
	var want, got []string
	for _, s := range configtable.Idle {
		if verdict.IsIdle(s.Reason) {
			require.True(t, s.Adjustable, "%s: the page changes it by a request", s.Name)
			want = append(want, s.Name)
		}
	}
	_, form, _ := strings.Cut(string(page.HTML), `<form id="timeouts"`)
	form, _, _ = strings.Cut(form, "</form>")
	for _, m := range regexp.MustCompile(`<input [^>]*\bname="([^"]+)"`).FindAllStringSubmatch(form, -1) {
		got = append(got, m[1])
	}
	require.Equal(t, want, got)
}

// TestConcurrentChangesAreAllKept changes different timeouts at the same time.
func TestConcurrentChangesAreAllKept(t *testing.T) {
	h := newHandler(t, Config{Token: rightToken})
	names := []string{"read-timeout", "write-timeout", "all-timeout", "first-byte-timeout", "handshake-timeout", "write-stall-timeout"}
	for round := 1; round <= 50; round++ {
		want := (time.Duration(round) * time.Minute).String()
		begin := make(chan struct{})
		var all sync.WaitGroup
		answers := make([]answered, len(names))
		for i, name := range names {
			all.Go(func() {
				<-begin
				answers[i] = call(h, "POST", "/api/timeouts", fmt.Sprintf(`{%q:%q}`, name, want))
			})
		}
		close(begin)
		all.Wait()
		got := h.reaper.Limits()
		for i, name := range names {
			require.Equal(t, 200, answers[i].status, answers[i].body)
			require.Equal(t, want, got[name], "%s in round %d", name, round)
		}
	}
}
