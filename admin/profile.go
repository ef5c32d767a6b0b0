package admin

import (
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

// maxProfile is the longest time that a profile may take.
const maxProfile = 5 * time.Minute

// serveProfile does what package net/http/pprof does. That one adds itself to the default mux of the program, where whoever links this
// package does not expect it.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch name := r.PathValue("name"); name {
	case "":
		var names []string
		for _, p := range pprof.Profiles() {
			names = append(names, p.Name())
		}
		answer(w, map[string]any{"profiles": append(names, "profile?seconds=30", "trace?seconds=5")})
	case "profile":
		record(w, r, 30*time.Second, func(w http.ResponseWriter) error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
	case "trace":
		record(w, r, time.Second, func(w http.ResponseWriter) error { return trace.Start(w) }, trace.Stop)
	default:
		p := pprof.Lookup(name)
		if p == nil {
			fail(w, http.StatusNotFound, "there is no profile %.40q: see /debug/pprof/", name)
			return
		}
		debug, _ := strconv.Atoi(r.URL.Query().Get("debug"))
		w.Header().Set("Content-Type", "application/octet-stream")
		if debug > 0 {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		_ = p.WriteTo(w, debug) // an error means that the client has gone
	}
}

// record lets a profile run for the time that is asked for, or until the client goes.
func record(w http.ResponseWriter, r *http.Request, d time.Duration, start func(http.ResponseWriter) error, stop func()) {
	if s := r.URL.Query().Get("seconds"); s != "" {
		seconds, err := strconv.Atoi(s)
		if most := int(maxProfile.Seconds()); err != nil || seconds < 1 || seconds > most {
			fail(w, http.StatusBadRequest, "seconds is %.40q: take a number from 1 to %d", s, most)
			return
		}
		d = time.Duration(seconds) * time.Second
	}
	out := http.NewResponseController(w)
	_, _ = out.SetReadDeadline(time.Now().Add(d+patience)), out.SetWriteDeadline(time.Now().Add(d+patience)) // those that cannot be set are none
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.Method == "HEAD" {
		return
	}
	if err := start(w); err != nil { // another one runs
		fail(w, http.StatusConflict, "%v", err)
		return
	}
	defer stop()
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}
