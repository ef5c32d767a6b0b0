package idlenet

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFewConnectionsHoldNoVerdict: 3 connections that were busy say nothing about the network.
func TestFewConnectionsHoldNoVerdict(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 2 * time.Second})
	all := []*simLife{w.accept(), w.accept(), w.accept()}
	for range 100 {
		for _, l := range all {
			l.sock.peer.transmit(1, false)
		}
		w.sleep(50 * time.Millisecond)
	}
	w.sleep(2*time.Second + w.slack())
	require.Zero(t, w.ln.Stats().Holds)
	require.EqualValues(t, 3, w.ln.Stats().Reaped[ReadIdle], "they end in time")
}

// TestAHoldLastsUntilBytesArrive has many connections, so that the judge does not know all last
// bytes when it notices the silence.
func TestAHoldLastsUntilBytesArrive(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: 4 * time.Second})
	var all []*simLife
	for range 100 {
		all = append(all, w.accept())
	}
	beat := func() {
		for _, l := range all {
			l.sock.peer.transmit(1, false)
			w.sleep(time.Millisecond)
		}
	}
	for range 100 {
		beat()
	}
	w.sleep(5 * time.Second)
	require.True(t, w.ln.Stats().Holding)
	require.Zero(t, w.ln.Stats().Outages, "no byte has ended the silence")
	require.Zero(t, w.ln.Stats().Reaped.Total())
	beat()
	w.sleep(200 * time.Millisecond)
	require.False(t, w.ln.Stats().Holding)
	require.Greater(t, w.ln.Stats().OutageTime, 4*time.Second)
	require.Zero(t, w.ln.Stats().Reaped.Total())
}

// TestEndsLeaveTimeForTheLiving: the judge rests while many connections end together. The rest is
// real time, also in the simulation.
func TestEndsLeaveTimeForTheLiving(t *testing.T) {
	var w *simWorld
	var ends []time.Time
	w = newQuietWorld(t, Config{ReadTimeout: 2 * time.Second, OnReap: func(c net.Conn, reason *ReapError) {
		ends = append(ends, time.Now())
		w.onReap(c, reason)
	}})
	for range 500 {
		w.accept()
	}
	w.sleep(2*time.Second + w.slack())
	require.Len(t, ends, 500)
	for i, at := range ends[callsAtOnce+looksPerLock:] {
		require.GreaterOrEqual(t, at.Sub(ends[i]), rest)
	}
}
