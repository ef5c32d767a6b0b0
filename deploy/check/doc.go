// Package check has only tests: they check the files in deploy/ without a cluster, Prometheus or
// Grafana. It is a module of its own, so that users of idlewheel do not depend on its requirements.
//
//	go -C deploy/check test ./...
package check
