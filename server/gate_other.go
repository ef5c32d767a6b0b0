//go:build !linux

package server

// A latch keeps listeners from being accepted from, which is not possible here: connections for which there is no room are rejected after
// they were accepted.
type latch struct{ fds []int }

func listeners(address) ([]int, error) { return nil, errCannotPause }

func newLatch([]int) (latch, error) { return latch{}, errCannotPause }

func (latch) close() error { return nil }
func (latch) open() error  { return nil }
func (latch) drops() bool  { return true }

func unfilter(int) error { return nil }
