package metrics_test

import (
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/metrics"
)

// The Collector is registered like any other. Package promhttp serves the metrics over HTTP.
func ExampleNewCollector() {
	reaper, err := idle.Middleware(&gnet.BuiltinEventEngine{}, idle.Config{ReadTimeout: time.Minute, MaxConnections: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(reaper))

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "idlewheel_connections_limit" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: idlewheel_connections_limit 1000
}
