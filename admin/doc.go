// Package admin shows a Reaper to those who operate it, and lets them change what may be changed while it runs: an http.Handler with
// a live page of the timing wheels, the same as JSON, metrics and probes.
//
//	h, err := admin.New(admin.Config{Reaper: reaper, Token: token})
//	if err != nil {
//		return err
//	}
//	return http.ListenAndServe("10.0.0.5:7080", h)
//
// Package server does this and more for Config.Admin, bounded in connections and time; whoever listens himself should bound both.
//
//	GET  /                            the live page: one file, no requests but to what is below
//	GET  /livez, /readyz              200, or 503 and why
//	GET  /metrics                     for Prometheus, see package metrics
//	GET  /api/connections             ?sort=idle, age or output, ?limit=1 to 1000
//	GET  /api/closed                  those that were reaped last, and why
//	GET  /api/config                  the limits of now
//	GET  /api/events                  what the page shows, as server-sent events
//	POST /api/connections/{id}/kick   closes one
//	POST /api/timeouts                {"read-timeout":"30s"} changes the timeouts of all
//	GET  /debug/pprof/                profiles, with Config.Profiles
//
// # Who may
//
// Whoever changes something needs the token, as Authorization: Bearer, and a browser has to come from the page itself. Whoever reads
// needs it as well, but for the page, the probes and the metrics, unless Config.Open says that only this machine can reach the listener;
// then the page of another site that has made its name point here is refused too.
//
// # Cost
//
// While nobody looks at the page nothing runs. With viewers one goroutine asks the event loops for counts per sector of their wheels,
// at most four times a second and for at most a twentieth of the time, whatever the number of viewers; a viewer that is slow misses frames.
// A connection costs 5 ns of its loop per frame, in one piece, and 0.1 µs about once a second for the table of the longest idle, in
// pieces of a tenth of a millisecond.
package admin
