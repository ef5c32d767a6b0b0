package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/internal/prom"
	"github.com/idlewheel/idlewheel/metrics"
	"github.com/idlewheel/idlewheel/server/internal/descriptor"
)

// A collector adds the metrics of a server to those of its Reaper.
type collector struct {
	*metrics.Collector
	server *Server
}

// Collector returns a prometheus.Collector for the metrics of the server and of its Reaper, see
// package metrics. Register it in one registry. The metrics of Config.Admin include it.
func (s *Server) Collector() prometheus.Collector {
	return &collector{metrics.NewCollector(s.reaper), s}
}

var (
	pressureRatio   = desc("pressure_ratio", "Share of a resource in use, from 0 to 1, by resource; 0 if it is not limited.", "resource")
	acceptPaused    = desc("accept_paused", "1 while accepting is paused because there is no room, 0 otherwise.")
	acceptPauses    = desc("accept_pauses_total", "How often accepting was paused because there was no room.")
	isDraining      = desc("draining", "1 while connections are closed because the server stops, 0 otherwise.")
	engineRestarts  = desc("engine_restarts_total", "Engines that were started after the death of another.")
	openDescriptors = desc("open_descriptors", "Descriptors that the process has open.")
	maxDescriptors  = desc("max_descriptors", "Descriptors that the process may have open; 0 if that is not known.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("idlewheel_"+name, help, labels, nil)
}

// Describe sends the descriptions of all metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	c.Collector.Describe(ch)
	for _, d := range []*prometheus.Desc{
		pressureRatio, acceptPaused, acceptPauses, isDraining, engineRestarts, openDescriptors, maxDescriptors,
	} {
		ch <- d
	}
}

// Collect sends the present values of all metrics.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.Collector.Collect(ch)
	send := func(d *prometheus.Desc, as prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, as, value, labels...)
	}
	s := c.server.Stats()
	ch <- prom.Rejected("source", s.Rejected.Source)
	ch <- prom.Rejected("accept_rate", s.Rejected.AcceptRate)
	ch <- prom.Rejected("no_descriptors", s.Rejected.NoDescriptors)
	send(pressureRatio, prometheus.GaugeValue, s.Pressure.Connections, "connections")
	send(pressureRatio, prometheus.GaugeValue, s.Pressure.Descriptors, "descriptors")
	send(pressureRatio, prometheus.GaugeValue, s.Pressure.Heap, "heap")
	send(acceptPaused, prometheus.GaugeValue, oneIf(s.Paused))
	send(acceptPauses, prometheus.CounterValue, float64(s.Pauses))
	send(isDraining, prometheus.GaugeValue, oneIf(s.Draining))
	send(engineRestarts, prometheus.CounterValue, float64(s.Restarts))
	send(openDescriptors, prometheus.GaugeValue, float64(descriptor.InUse()))
	send(maxDescriptors, prometheus.GaugeValue, float64(s.MaxDescriptors))
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
