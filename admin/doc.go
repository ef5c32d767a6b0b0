// Package admin is the operator's view of a Reaper: an http.Handler with a live page of the timing
// wheels, the same data as JSON, metrics, probes, and endpoints that change settings at run time.
//
//	h, err := admin.New(admin.Config{Reaper: reaper, Token: token})
//	if err != nil {
//		return err
//	}
//	srv := h.NewServer()
//	srv.Addr = "10.0.0.5:7080"
//	return srv.ListenAndServe()
//
// Package server does so for its Config.Admin. [Handler.NewServer] limits connections and the time
// of each request, so that a flood keeps neither the operator nor probes out.
//
//	GET  /                            the live page: one file that loads nothing else
//	GET  /livez, /readyz              200, or 503 and the reason
//	GET  /metrics                     for Prometheus, see package metrics
//	GET  /api/connections             ?sort=idle, age or output, ?limit=1 to 1000
//	GET  /api/closed                  the connections reaped last, and why
//	GET  /api/config                  the settings and the limits in force
//	GET  /api/silences                ?timeout=40s: what another timeout would have done
//	GET  /api/events                  the data of the page, as server-sent events
//	POST /api/connections/{id}/kick   closes a connection
//	POST /api/timeouts                {"read-timeout":"30s"} changes timeouts of all connections
//	GET  /debug/pprof/                profiles, with Config.Profiles
//
// # Access
//
// A request that changes something needs the token, as Authorization: Bearer. From a browser, it
// must come from the page itself. A request that reads needs the token too, unless Config.Open says
// that only this machine can reach the listener. Profiles need the token if there is one. The page,
// the probes and the metrics are public. Requests without the token that they need are logged and
// counted.
//
// With Config.Open, requests for the name of another host are refused. Otherwise a foreign site
// could let its name point to this machine, and read the answers in a browser that runs here.
//
// # Cost
//
// Without viewers of the page, the counters are read once a second for its charts. With viewers,
// one goroutine inspects the event loops for counts per sector of their wheels. It does so at most
// four times a second and for at most a twentieth of the time, and the number of viewers does not
// matter. A slow viewer misses frames. If all places of viewers are taken, those that do not read
// make room.
// A connection costs 5 ns of its event loop per frame, in one task for all connections of the
// loop. The table of the longest idle connections costs 0.1 µs per connection about once a
// second, in tasks of a tenth of a millisecond.
package admin
