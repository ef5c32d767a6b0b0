// Package prom makes the Prometheus metrics that packages metrics and server share.
package prom

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/reap"
)

// RejectedDesc describes the metric of [Rejected].
var RejectedDesc = Desc("connections_rejected_total",
	"Connections that were closed on arrival, without a call of the handler, by reason.", "reason")

// Desc describes the metric idlewheel_ and name.
func Desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("idlewheel_"+name, help, labels, nil)
}

// Rejected counts connections that were closed on arrival for a reason. Package metrics knows one
// reason, package server the others.
func Rejected(reason string, n uint64) prometheus.Metric {
	return prometheus.MustNewConstMetric(RejectedDesc, prometheus.CounterValue, float64(n), reason)
}

// Label returns the name of a reason in labels and logs, such as read_idle.
func Label(r reap.Reason) string { return strings.ReplaceAll(r.Error(), " ", "_") }

// OneIf returns 1 for true and 0 for false.
func OneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
