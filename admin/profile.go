package admin

import (
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

// maxProfile is the longest duration of a profile.
const maxProfile = 5 * time.Minute

// serveProfile does the same as package net/http/pprof, but has no differences between two profiles
// of the heap. That package is not imported, because it adds itself to http.DefaultServeMux of the
// program.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch name := r.PathValue("name"); name {
	case "":
		var names []string
		for _, p := range pprof.Profiles() {
			names = append(names, p.Name())
		}
		answer(w, map[string]any{"profiles": append(names, "profile?seconds=30", "trace?seconds=5")})
	case "profile":
		start := func(w http.ResponseWriter) error { return pprof.StartCPUProfile(w) }
		record(w, r, 30*time.Second, start, pprof.StopCPUProfile)
	case "trace":
		record(w, r, time.Second, func(w http.ResponseWriter) error { return trace.Start(w) }, trace.Stop)
	default:
		p := pprof.Lookup(name)
		if p == nil {
			fail(w, http.StatusNotFound, "there is no profile %.40q: see /debug/pprof/", name)
			return
		}
		if r.URL.Query().Has("seconds") {
			fail(w, http.StatusBadRequest, "the profile %s has no seconds: fetch it twice, and use -diff_base of go tool pprof", name)
			return
		}
		debug, _ := strconv.Atoi(r.URL.Query().Get("debug"))
		w.Header().Set("Content-Type", "application/octet-stream")
		if debug > 0 {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		_ = p.WriteTo(w, debug) // an error means that the client is gone
	}
}

// record writes a profile of the duration that the request gives, or until the client is gone.
func record(w http.ResponseWriter, r *http.Request, d time.Duration, start func(http.ResponseWriter) error, stop func()) {
	if text := r.URL.Query().Get("seconds"); text != "" {
		seconds, err := parseNumber("seconds", text, int(maxProfile.Seconds()))
		if err != nil {
			fail(w, http.StatusBadRequest, "%v", err)
			return
		}
		d = time.Duration(seconds) * time.Second
	}
	out, deadline := http.NewResponseController(w), time.Now().Add(d+loopTimeout)
	// Not every ResponseWriter has deadlines.
	_, _ = out.SetReadDeadline(deadline), out.SetWriteDeadline(deadline)
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.Method == "HEAD" {
		return
	}
	if err := start(w); err != nil { // a profile is being recorded already
		fail(w, http.StatusConflict, "%v", err)
		return
	}
	defer stop()
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}
