package admin

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serveProfiles runs a Handler with profiles over HTTP. A process has one CPU profile at a time,
// so tests that record it are not parallel.
func serveProfiles(t *testing.T) *site {
	t.Helper()
	s := &site{handler: newHandler(t, Config{Token: rightToken, Profiles: true})}
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	s.url = web.URL
	return s
}

// TestProfilesNeedTheTokenOnLoopback sends requests as another user of the machine does. If there
// is no token, every user may read profiles.
func TestProfilesNeedTheTokenOnLoopback(t *testing.T) {
	with, without := newHandler(t, Config{Open: true, Profiles: true, Token: rightToken}), newHandler(t, Config{Open: true, Profiles: true})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile", "/debug/pprof/nothing"} {
		requireError(t, 401, call(with, "GET", path, "", "Authorization", ""), path)
	}
	require.Equal(t, 200, call(with, "GET", "/debug/pprof/heap", "").status)
	require.Equal(t, 200, call(without, "GET", "/debug/pprof/heap", "", "Authorization", "").status)
}

func TestTheIndexNamesTheProfiles(t *testing.T) {
	s := serveProfiles(t)
	all := decode[struct{ Profiles []string }](t, s.do(t, "GET", "/debug/pprof/", "")).Profiles
	for _, name := range []string{"heap", "goroutine", "mutex", "block", "allocs", "threadcreate"} {
		require.Contains(t, all, name)
		a := s.do(t, "GET", "/debug/pprof/"+name, "")
		require.Equal(t, 200, a.status)
		require.True(t, strings.HasPrefix(a.body, "\x1f\x8b"), "%s is compressed", name)
		require.Equal(t, "application/octet-stream", a.header.Get("Content-Type"))
	}
	text := s.do(t, "GET", "/debug/pprof/goroutine?debug=1", "")
	require.Contains(t, text.header.Get("Content-Type"), "text/plain")
	require.True(t, strings.HasPrefix(text.body, "goroutine profile: total "), text.body[:min(len(text.body), 100)])
	for _, path := range []string{"nothing", "heap/", "profile/", "../livez%00", strings.Repeat("x", 10_000)} {
		requireError(t, 404, s.do(t, "GET", "/debug/pprof/"+strings.ReplaceAll(path, "/", "%2f"), ""))
	}
}

func TestAProfileOfTheCPUCanBeRead(t *testing.T) {
	s := serveProfiles(t)
	a := s.do(t, "GET", "/debug/pprof/profile?seconds=1", "")
	require.Equal(t, 200, a.status)
	require.True(t, strings.HasPrefix(a.body, "\x1f\x8b"))
	file := filepath.Join(t.TempDir(), "cpu")
	require.NoError(t, os.WriteFile(file, []byte(a.body), 0o600))
	if exec.CommandContext(t.Context(), "go", "tool", "-n", "pprof").Run() != nil {
		return // this installation of Go has no pprof
	}
	raw, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-raw", file).CombinedOutput()
	require.NoError(t, err, string(raw))
	require.Contains(t, string(raw), "PeriodType: cpu nanoseconds")
}

func TestAnInvalidDurationIsRefused(t *testing.T) {
	h := newHandler(t, Config{Open: true, Profiles: true})
	for _, path := range []string{"profile", "trace"} {
		for _, seconds := range []string{"0", "-1", "301", "abc", "1.5", "1s", "1e9", "99999999999999999999", strings.Repeat("9", 10_000),
			"18446744074"} { // in nanoseconds it overflows 64 bits, and 0.29 s remain
			requireError(t, 400, call(h, "GET", "/debug/pprof/"+path+"?seconds="+seconds, ""), seconds)
		}
	}
}

// TestASecondProfileAtTheSameTimeIsRefused ends the first profile by the end of its client.
func TestASecondProfileAtTheSameTimeIsRefused(t *testing.T) {
	s := serveProfiles(t)
	for _, path := range []string{"/debug/pprof/profile", "/debug/pprof/trace"} {
		ctx, disconnect := context.WithCancel(t.Context())
		defer disconnect()
		gone := make(chan error, 1)
		r := s.request(t, "GET", path+"?seconds=100", nil).WithContext(ctx)
		go func() {
			resp, err := http.DefaultTransport.RoundTrip(r)
			for err == nil && resp.StatusCode == http.StatusConflict { // the second one came first
				resp.Body.Close()
				resp, err = http.DefaultTransport.RoundTrip(r)
			}
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			gone <- err
		}()
		// The context of the second profile has ended, so it takes no time if it is not refused.
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		second := func() answered {
			return callWith(s.handler, newRequest(ended, "GET", path+"?seconds=1", ""))
		}
		var a answered
		eventually(t, "the second profile is refused", func() bool {
			a = second()
			return a.status != 200
		})
		requireError(t, 409, a)
		disconnect()
		require.Error(t, <-gone)
		eventually(t, "the first profile has ended", func() bool { return second().status == 200 })
	}
}

func TestAProfileOutlivesTheTimeoutsOfItsServer(t *testing.T) {
	web := httptest.NewUnstartedServer(newHandler(t, Config{Token: rightToken, Profiles: true}))
	web.Config.ReadTimeout, web.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	web.Start()
	t.Cleanup(web.Close)
	a := (&site{url: web.URL}).do(t, "GET", "/debug/pprof/trace?seconds=1", "")
	require.Equal(t, 200, a.status)
	require.True(t, strings.HasPrefix(a.body, "go 1."), "a trace begins with the version of Go")
}
