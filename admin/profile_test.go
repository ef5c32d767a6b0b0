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

// profiled runs a Handler with profiles over HTTP. The CPU profile is one of the process: those that take it are not parallel.
func profiled(t *testing.T) *site {
	t.Helper()
	s := &site{handler: newHandler(t, Config{Token: rightToken, Profiles: true})}
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	s.url = web.URL
	return s
}

func TestWithoutProfilesThereAreNone(t *testing.T) {
	h := newHandler(t, Config{Open: true, Token: rightToken})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile", "/debug/pprof/trace"} {
		requireError(t, 404, ask(h, "GET", path, ""), path)
	}
}

func TestTheIndexNamesTheProfiles(t *testing.T) {
	s := profiled(t)
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
	s := profiled(t)
	a := s.do(t, "GET", "/debug/pprof/profile?seconds=1", "")
	require.Equal(t, 200, a.status)
	require.True(t, strings.HasPrefix(a.body, "\x1f\x8b"))
	file := filepath.Join(t.TempDir(), "cpu")
	require.NoError(t, os.WriteFile(file, []byte(a.body), 0o600))
	if exec.CommandContext(t.Context(), "go", "tool", "-n", "pprof").Run() != nil {
		return // this Go has none
	}
	raw, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-raw", file).CombinedOutput()
	require.NoError(t, err, string(raw))
	require.Contains(t, string(raw), "PeriodType: cpu nanoseconds")
}

func TestATraceIsOne(t *testing.T) {
	a := profiled(t).do(t, "GET", "/debug/pprof/trace?seconds=1", "")
	require.Equal(t, 200, a.status)
	require.True(t, strings.HasPrefix(a.body, "go 1."), "it begins as a trace does")
}

func TestATimeThatMakesNoSenseIsRefused(t *testing.T) {
	h := newHandler(t, Config{Open: true, Profiles: true})
	for _, path := range []string{"profile", "trace"} {
		for _, seconds := range []string{"0", "-1", "301", "abc", "1.5", "1s", "1e9", "99999999999999999999", strings.Repeat("9", 10_000)} {
			requireError(t, 400, ask(h, "GET", "/debug/pprof/"+path+"?seconds="+seconds, ""), seconds)
		}
	}
}

// So many nanoseconds have more than 64 bits: what is left of them is 0.29 s, which was taken for the time.
func TestATimeThatOverflowsIsRefused(t *testing.T) {
	h := newHandler(t, Config{Open: true, Profiles: true})
	require.Equal(t, 400, ask(h, "GET", "/debug/pprof/profile?seconds=18446744074", "").status)
}

// TestASecondProfileAtTheSameTimeIsRefused also has a client that goes away end the first one.
func TestASecondProfileAtTheSameTimeIsRefused(t *testing.T) {
	s := profiled(t)
	for _, path := range []string{"/debug/pprof/profile", "/debug/pprof/trace"} {
		ctx, goAway := context.WithCancel(t.Context())
		defer goAway()
		gone := make(chan error, 1)
		r := s.request(t, "GET", path+"?seconds=100", nil).WithContext(ctx)
		go func() {
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			gone <- err
		}()
		// The second one has a context that is over, so that it takes no time if it is the first.
		over, cancel := context.WithCancel(t.Context())
		cancel()
		second := func() answered {
			r := httptest.NewRequestWithContext(over, "GET", path+"?seconds=1", nil)
			setHeaders(r, nil)
			return askWith(s.handler, r)
		}
		var a answered
		eventually(t, "the second one is refused", func() bool {
			a = second()
			return a.status != 200
		})
		requireError(t, 409, a)
		goAway()
		require.Error(t, <-gone)
		eventually(t, "the first one has ended with its client", func() bool { return second().status == 200 })
	}
}

func TestAProfileOutlivesTheTimeoutsOfItsServer(t *testing.T) {
	s := &site{handler: newHandler(t, Config{Token: rightToken, Profiles: true})}
	web := httptest.NewUnstartedServer(s.handler)
	web.Config.ReadTimeout, web.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	web.Start()
	t.Cleanup(web.Close)
	s.url = web.URL
	a := s.do(t, "GET", "/debug/pprof/trace?seconds=1", "")
	require.Equal(t, 200, a.status)
	require.NotEmpty(t, a.body)
}
