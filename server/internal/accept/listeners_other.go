//go:build !linux

package accept

import "net"

// listeners cannot be paused on this system. Connections above the limit are closed after they are
// accepted.
type listeners struct{ fds []int }

func find([]net.Addr) ([]int, error) { return nil, errCannotPause }

func newListeners([]int) (listeners, error) { return listeners{}, errCannotPause }

func (listeners) pause() error   { return nil }
func (listeners) resume() error  { return nil }
func (listeners) dropsAll() bool { return true }

// Unfilter does nothing: there are no filters on this system.
func Unfilter(int) error { return nil }
