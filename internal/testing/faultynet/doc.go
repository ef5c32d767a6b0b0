// Package faultynet has a network for tests that loses packets, and can be cut. Linux only.
package faultynet
