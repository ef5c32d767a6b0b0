// Package metrics exports what a Reaper knows to Prometheus:
//
//	prometheus.MustRegister(metrics.NewCollector(reaper))
//
// It is a package of its own, so that only programs that import it link the Prometheus client.
// Package server has a collector with more metrics, Server.Collector, which includes this one.
//
// No metric has a label with a value per connection. Names have the prefix idlewheel_, units are
// seconds, and the reason of a close is the name of its reap.Reason with underscores. The table of
// all metrics is in docs/metrics.md.
//
// # Cost
//
// A scrape scans all connections once to count them by state. It takes about 0.1 µs per connection
// on the event loops, in tasks of 1,024 connections. Messages are served between the tasks. Nothing
// runs between scrapes.
package metrics

import (
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/internal/prom"
	"github.com/idlewheel/idlewheel/internal/version"
	"github.com/idlewheel/idlewheel/reap"
)

// StateUnknown is the state of all connections in a scrape during which an event loop did not
// answer. The usual cause is a handler that blocks.
const StateUnknown = "unknown"

var (
	connections = prom.Desc("connections", "Connections that are open now, by state.", "state")
	limit       = prom.Desc("connections_limit", "Largest number of open connections; 0 if it is unlimited.")
	opened      = prom.Desc("connections_opened_total", "Connections that were opened.")
	closed      = prom.Desc("connections_closed_total",
		"Connections that were closed, by reason: that of the reap, peer (FIN), error (such as a reset) or handler.", "reason")
	observed = prom.Desc("connections_observed_total",
		"Connections that would have been reaped without ObserveOnly, by reason.", "reason")
	reads  = prom.Desc("reads_total", "Calls of the handler with new bytes from the peer.")
	events = prom.Desc("idle_events_total", "Idle events, by reason.", "reason")
	pings  = prom.Desc("heartbeats_sent_total", "Heartbeats sent to silent peers.")
	missed = prom.Desc("heartbeats_missed_total", "Heartbeats that were not answered in time.")
	spared = prom.Desc("spared_unread_total",
		"Connections that seemed dead while the kernel had unread bytes of the peer.")
	postponed = prom.Desc("verdicts_postponed_total", "Verdicts that were postponed because of an outage of the server.")
	outages   = prom.Desc("outages_total",
		"Outages of the server: its process was stopped, its machine was paused or its network was down.")
	outageTime  = prom.Desc("outage_seconds_total", "Length of all outages.")
	suspensions = prom.Desc("suspensions_total",
		"Times that verdicts were suspended because many busy connections fell silent together.")
	groupSuspensions = prom.Desc("group_suspensions_total",
		"Times that verdicts about a group of connections were suspended because the group fell silent.")
	groupsSuspended = prom.Desc("groups_suspended", "Groups of connections for which verdicts are suspended.")
	suspended       = prom.Desc("verdicts_suspended", "1 while verdicts are suspended, 0 otherwise.")
	lateness        = prom.Desc("reap_lateness_seconds", "Time between the deadline of a connection and its reap.")
	entries         = prom.Desc("wheel_entries", "Entries in the timing wheels: one for each connection.")
	backlog         = prom.Desc("wheel_backlog_entries", "Entries of the timing wheels that are due and not yet checked.")
	loopDelay       = prom.Desc("loop_delay_seconds", "Delay of the event loop that is latest with its wheel.")
	clockDelay      = prom.Desc("clock_delay_seconds",
		"Largest delay of the clock of the wheels in the last 10 to 20 seconds.")
	output = prom.Desc("pending_output_bytes",
		"Bytes of output that wait in the buffers of all connections; 0 without a limit of all output.")
	unwritable = prom.Desc("unwritable_connections",
		"Connections that are not writable: their output has passed the high mark and not fallen to the low mark.")
	cuts = prom.Desc("timeout_cut_connections",
		"Living connections that this part of the read timeout would have cut; absent if not enough is known.", "part")
	build = prom.Desc("build_info", "Always 1; the labels are the versions that the program was built with.",
		"version", "goversion", "gnet")
)

// A Collector is a prometheus.Collector of one *idle.Reaper or *idlenet.Listener. Safe for
// concurrent use.
type Collector struct {
	reaper reap.Reaper
	build  prometheus.Metric
}

// NewCollector returns a Collector of a Reaper. For more than one Reaper in one registry, wrap it:
//
//	labels := prometheus.Labels{"server": "chat"}
//	prometheus.WrapRegistererWith(labels, registry).MustRegister(collector)
func NewCollector(r reap.Reaper) *Collector {
	return &Collector{reaper: r, build: prometheus.MustNewConstMetric(build, prometheus.GaugeValue, 1,
		version.Of(version.Idlewheel), runtime.Version(), version.Of(version.Gnet))}
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		connections, limit, opened, closed, observed, prom.RejectedDesc, reads, events, pings, missed, spared,
		postponed, outages, outageTime, suspensions, groupSuspensions, groupsSuspended, suspended, lateness,
		entries, backlog, loopDelay, clockDelay, output, unwritable, cuts, build,
	} {
		ch <- d
	}
}

// Collect sends the values of all metrics. It waits for the event loops for at most one second. If
// one does not answer, the state of all connections is [StateUnknown].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	send := func(as prometheus.ValueType, d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, as, value, labels...)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		send(prometheus.GaugeValue, d, value, labels...)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		send(prometheus.CounterValue, d, float64(n), labels...)
	}
	in := read(c.reaper)
	for state, n := range in.states {
		gauge(connections, float64(n), state)
	}
	gauge(connections, float64(in.unknown), StateUnknown)
	gauge(limit, float64(in.limit))
	gauge(backlog, float64(in.overdue))
	s := &in.stats
	counter(opened, s.Opened)
	for reason, n := range s.Reaped {
		counter(closed, n, prom.Label(reason))
		counter(observed, s.Observed[reason], prom.Label(reason))
	}
	for _, reason := range []reap.Reason{reap.ReadIdle, reap.WriteIdle, reap.AllIdle} {
		counter(events, s.Events[reason], prom.Label(reason))
	}
	counter(closed, s.ClosedByPeer, "peer")
	counter(closed, s.Failed, "error")
	counter(closed, s.ClosedByHandler, "handler")
	ch <- prom.Rejected("max_connections", s.Refused-s.RefusedBySource-s.RefusedByRate)
	for reason, n := range map[string]uint64{"source": s.RefusedBySource, "accept_rate": s.RefusedByRate} {
		if n > 0 { // package server has metrics of its own for them
			ch <- prom.Rejected(reason, n)
		}
	}
	counter(reads, s.Reads)
	counter(pings, s.Pings)
	counter(missed, s.Missed)
	counter(spared, s.SparedUnread)
	counter(postponed, s.Postponed)
	counter(outages, s.Outages)
	send(prometheus.CounterValue, outageTime, s.OutageTime.Seconds())
	counter(suspensions, s.Suspensions)
	counter(groupSuspensions, s.GroupSuspensions)
	gauge(groupsSuspended, float64(len(s.SuspendedFor))-prom.OneIf(s.Suspended))
	gauge(suspended, prom.OneIf(s.Suspended))
	gauge(entries, float64(s.Entries))
	gauge(loopDelay, s.LoopDelay.Seconds())
	gauge(clockDelay, s.ClockDelay.Seconds())
	gauge(output, float64(s.PendingOutput))
	gauge(unwritable, float64(s.Unwritable))
	for _, part := range []float64{0.5, 0.75, 1} {
		if cut, _, known := in.silences.Try(time.Duration(part * float64(in.silences.Timeout))); known {
			gauge(cuts, float64(cut), fmt.Sprint(part))
		}
	}
	ch <- histogram(&s.Lateness)
	ch <- c.build
}

// histogram returns the lateness. Prometheus wants cumulative buckets.
func histogram(l *reap.LatenessStats) prometheus.Metric {
	buckets := make(map[float64]uint64, len(l.Bounds))
	total := uint64(0)
	for i, bound := range l.Bounds {
		total += l.Buckets[i]
		buckets[bound.Seconds()] = total
	}
	return prometheus.MustNewConstHistogram(lateness, l.Count, l.Sum.Seconds(), buckets)
}
