// Package metrics gives Prometheus what a Reaper knows:
//
//	prometheus.MustRegister(metrics.NewCollector(reaper))
//
// It is a package of its own so that only those link the Prometheus client who want it. A server of package server has a collector with
// more, Server.Collector, which includes this one.
//
// There is no label with a value per connection. Names have the prefix idlewheel_, units are seconds, and the reason of a close is the
// name of its idle.Reason with underscores. The table with what each means is docs/operating.md.
//
// # Cost
//
// A scrape goes through all connections once, to count them by state: about 0.1 µs each on their event loops, in tasks of 1,024, with
// messages served in between. Between scrapes nothing is done.
package metrics

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/idle"
)

// patience is how long a scrape waits for event loops. Prometheus itself waits for ten seconds.
const patience = time.Second

// StateUnknown is the state of all connections in a scrape while an event loop does not answer: it is blocked, by a handler most likely.
const StateUnknown = "unknown"

var (
	connections = desc("connections", "Connections that are open now, by state.", "state")
	limit       = desc("connections_limit", "Connections that may be open; 0 if any number.")
	opened      = desc("connections_opened_total", "Connections that were opened.")
	closed      = desc("connections_closed_total",
		"Connections that were closed, by reason: why they were reaped, or peer (FIN), error (reset and others) or handler.", "reason")
	observed = desc("connections_observed_total", "Connections that would have been reaped, but for ObserveOnly, by reason.", "reason")
	rejected = desc("connections_rejected_total",
		"Connections that were closed as they came, of which the handler was told nothing, by reason.", "reason")
	reads   = desc("reads_total", "Calls of the handler with new bytes of a peer.")
	events  = desc("idle_events_total", "Idle events, by reason.", "reason")
	pings   = desc("heartbeats_sent_total", "Heartbeats sent to silent peers.")
	missed  = desc("heartbeats_missed_total", "Heartbeats that were not answered in time.")
	saved   = desc("saved_by_kernel_total", "Connections that seemed dead, but the kernel had bytes of the peer.")
	putOff  = desc("verdicts_put_off_total", "Verdicts that were put off because of an outage of the server.")
	outages = desc("outages_total",
		"Times in which the server could not hear its peers: its process was stopped, its machine was paused or its network was down.")
	away     = desc("outage_seconds_total", "Length of all outages.")
	holds    = desc("holds_total", "Times in which verdicts were held because connections that were busy together fell silent together.")
	holding  = desc("holding", "1 while verdicts are held.")
	lateness = desc("reap_lateness_seconds", "How long after their deadlines connections were reaped.")
	entries  = desc("wheel_entries", "Entries in the timing wheels: one for each connection.")
	backlog  = desc("wheel_backlog_entries", "Entries of the timing wheels that are due and were not looked at yet.")
	behind   = desc("wheel_behind_seconds", "By how much the event loop that has most to do is behind with its wheel.")
	lag      = desc("driver_lag_seconds", "How late the clock of the wheels was at worst in the last 10 to 20 seconds.")
	build    = desc("build_info", "1, for the versions that the program was built with.", "version", "goversion", "gnet")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("idlewheel_"+name, help, labels, nil)
}

// Rejected returns the metric of connections that were closed as they came, for a collector that includes this one and knows more reasons.
func Rejected(reason string, n uint64) prometheus.Metric {
	return prometheus.MustNewConstMetric(rejected, prometheus.CounterValue, float64(n), reason)
}

// A Collector is a prometheus.Collector of one Reaper. Safe for concurrent use.
type Collector struct {
	reaper *idle.Reaper
	bounds []float64
	build  prometheus.Metric
}

// NewCollector returns a Collector of a Reaper. For more than one Reaper in one registry, wrap it:
// prometheus.WrapRegistererWith(prometheus.Labels{"server": "chat"}, registry).MustRegister(collector).
func NewCollector(r *idle.Reaper) *Collector {
	c := &Collector{reaper: r, build: prometheus.MustNewConstMetric(build, prometheus.GaugeValue, 1, versions()...)}
	for _, bound := range idle.LatenessBounds() {
		c.bounds = append(c.bounds, bound.Seconds())
	}
	return c
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		connections, limit, opened, closed, observed, rejected, reads, events, pings, missed, saved, putOff, outages, away,
		holds, holding, lateness, entries, backlog, behind, lag, build,
	} {
		ch <- d
	}
}

// Collect sends what the Reaper knows now. It waits for the event loops for at most a second; if one does not answer, the state of all
// connections is [StateUnknown].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) { counter(d, float64(n), labels...) }
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	overdue := c.collectStates(gauge)
	s := c.reaper.Stats()
	gauge(limit, float64(c.reaper.Config().MaxConnections))
	count(opened, s.Opened)
	for reason, n := range s.Reaped.All() {
		count(closed, n, Reason(reason))
		count(observed, s.Observed.Of(reason), Reason(reason))
	}
	for _, reason := range []idle.Reason{idle.ReadIdle, idle.WriteIdle, idle.AllIdle} {
		count(events, s.Events.Of(reason), Reason(reason))
	}
	count(closed, s.ClosedByPeer, "peer")
	count(closed, s.Failed, "error")
	count(closed, s.ClosedByHandler(), "handler")
	ch <- Rejected("max_connections", s.Refused)
	count(reads, s.Reads)
	count(pings, s.Pings)
	count(missed, s.Missed)
	count(saved, s.SavedByKernel)
	count(putOff, s.PutOff)
	count(outages, s.Outages)
	counter(away, s.OutageTime.Seconds())
	count(holds, s.Holds)
	gauge(holding, oneIf(s.Holding))
	gauge(entries, float64(s.Entries))
	gauge(backlog, float64(overdue))
	gauge(behind, s.Behind.Seconds())
	gauge(lag, s.DriverLag.Seconds())
	ch <- c.lateness(&s.Lateness)
	ch <- c.build
}

// collectStates sends the connections by state, and returns how many are overdue.
func (c *Collector) collectStates(gauge func(d *prometheus.Desc, value float64, labels ...string)) (overdue int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := c.reaper.Inspect(ctx, idle.Query{States: true})
	unknown := 0
	if err != nil {
		unknown = c.reaper.Connections()
	}
	for _, state := range idle.ConnStates() {
		gauge(connections, float64(found.States[state]), string(state))
	}
	gauge(connections, float64(unknown), StateUnknown)
	return found.Overdue
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c *Collector) lateness(l *idle.LatenessStats) prometheus.Metric {
	buckets := make(map[float64]uint64, len(c.bounds))
	upTo := uint64(0)
	for i, bound := range c.bounds {
		upTo += l.Buckets[i]
		buckets[bound] = upTo
	}
	return prometheus.MustNewConstHistogram(lateness, l.Count, l.Sum.Seconds(), buckets)
}

// Reason returns the value of a label for a reason, such as read_idle.
func Reason(r idle.Reason) string { return strings.ReplaceAll(r.Error(), " ", "_") }

const (
	module = "github.com/idlewheel/idlewheel"
	engine = "github.com/panjf2000/gnet/v2"
)

// versions returns those of this module, of Go and of gnet.
func versions() []string {
	return []string{Version(), runtime.Version(), versionOf(engine)}
}

// Version returns the version of this module that the program was built with.
func Version() string { return versionOf(module) }

func versionOf(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path {
			if m.Replace != nil {
				m = m.Replace
			}
			return m.Version
		}
	}
	return "unknown"
}
