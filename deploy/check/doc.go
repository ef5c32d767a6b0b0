// Package check has no code but tests: they hold what is in deploy/ against what it is for, without a cluster, a Prometheus or a Grafana.
// It is a module of its own, so that what they need is none of what idlewheel needs.
//
//	go -C deploy/check test ./...
package check
