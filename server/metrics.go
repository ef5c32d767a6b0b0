package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/internal/prom"
	"github.com/idlewheel/idlewheel/metrics"
)

// A collector adds the metrics of a server to those of its Reaper.
type collector struct {
	*metrics.Collector
	stats func() Stats
}

var (
	pressureRatio   = prom.Desc("pressure_ratio", "Share of a resource in use, from 0 to 1, by resource; 0 if it is not limited.", "resource")
	acceptPaused    = prom.Desc("accept_paused", "1 while accepting is paused because there is no room, 0 otherwise.")
	acceptPauses    = prom.Desc("accept_pauses_total", "How often accepting was paused because there was no room.")
	isDraining      = prom.Desc("draining", "1 while connections are closed because the server stops, 0 otherwise.")
	reloads         = prom.Desc("reloads_total", "Reloads of the limits, by result: applied or failed.", "result")
	droppedLogs     = prom.Desc("log_records_dropped_total", "Log records that were not written: the reader of the log was too slow or gone.")
	openDescriptors = prom.Desc("open_descriptors", "Descriptors that the process has open.")
	maxDescriptors  = prom.Desc("max_descriptors", "Descriptors that the process may have open; 0 if that is not known.")
)

// Describe sends the descriptions of all metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect sends the present values of all metrics.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.Collector.Collect(ch)
	send := func(d *prometheus.Desc, as prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, as, value, labels...)
	}
	s := c.stats()
	ch <- prom.Rejected("source", s.Rejected.Source)
	ch <- prom.Rejected("accept_rate", s.Rejected.AcceptRate)
	send(pressureRatio, prometheus.GaugeValue, s.Pressure.Connections, "connections")
	send(pressureRatio, prometheus.GaugeValue, s.Pressure.Descriptors, "descriptors")
	send(pressureRatio, prometheus.GaugeValue, s.Pressure.Heap, "heap")
	send(pressureRatio, prometheus.GaugeValue, s.Pressure.Memory, "memory")
	send(acceptPaused, prometheus.GaugeValue, prom.OneIf(s.Paused))
	send(acceptPauses, prometheus.CounterValue, float64(s.Pauses))
	send(isDraining, prometheus.GaugeValue, prom.OneIf(s.Draining))
	send(reloads, prometheus.CounterValue, float64(s.Reloads), "applied")
	send(reloads, prometheus.CounterValue, float64(s.FailedReloads), "failed")
	send(droppedLogs, prometheus.CounterValue, float64(s.DroppedLogs))
	send(openDescriptors, prometheus.GaugeValue, float64(descriptorsInUse()))
	send(maxDescriptors, prometheus.GaugeValue, float64(s.MaxDescriptors))
}
