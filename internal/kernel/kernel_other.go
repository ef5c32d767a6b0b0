//go:build !linux

package kernel

import (
	"net/netip"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// AskUnlessFresh is Ask, because the age of the last byte is not known on these systems.
func AskUnlessFresh(fd int, _ time.Duration, ev *verdict.Evidence) { Ask(fd, ev) }

// HoldsOutput reports false, because Ask reports no output on these systems.
func HoldsOutput(int) bool { return false }

// SetUserTimeout does nothing: retransmission gives up when the system sees fit.
func SetUserTimeout(int, time.Duration) error { return nil }

// Interrupt does nothing: calls that block end when the peer closes.
func Interrupt(int) {}

// LocalAddr returns the zero Addr.
func LocalAddr(int) netip.Addr { return netip.Addr{} }

// NoteOpened does nothing: Ask does not know Multipath TCP on these systems.
func NoteOpened(int) {}
