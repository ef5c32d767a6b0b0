package main

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	livingPeriod = 50 * time.Millisecond // between two messages of a living client
	livingSize   = 64                    // bytes of a message
)

// live is the main function of a process with living clients. They exchange messages until the
// parent writes the begin and the end of a span. The answer is the 99th percentile of the echoes of
// all messages that were due in it, in milliseconds. Goroutines of silent clients that end would
// delay those of living ones in the same process.
func live(addr string, n int) error {
	all := make([][]echoed, n)
	var stop atomic.Bool
	var living errgroup.Group
	for i := range all {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		first := time.Now().Add(livingPeriod * time.Duration(i) / time.Duration(n))
		living.Go(func() (err error) {
			all[i], err = exchange(conn, first, &stop)
			return err
		})
	}
	var from, to int64 // nanoseconds since 1970
	if _, err := fmt.Scan(&from, &to); err != nil {
		return err
	}
	stop.Store(true)
	if err := living.Wait(); err != nil {
		return fmt.Errorf("a living client: %w", err)
	}
	_, err := fmt.Println(p99Of(all, from, to))
	return err
}

// An echoed is a message that has come back.
type echoed struct {
	due  time.Time
	took time.Duration
}

// exchange sends a message each period, and waits for its echo. A message that is late because an
// echo has not come counts from when it was due.
func exchange(conn net.Conn, due time.Time, stop *atomic.Bool) (all []echoed, err error) {
	defer conn.Close()
	message := append(make([]byte, livingSize-1), '\n') // some of the servers read lines
	for ; ; due = due.Add(livingPeriod) {
		began := due
		if wait := time.Until(due); wait > 0 {
			if stop.Load() { // and no message is late
				return all, nil
			}
			time.Sleep(wait)
			began = time.Now()
		}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return nil, err
		}
		if _, err := conn.Write(message); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			return nil, err
		}
		all = append(all, echoed{due, time.Since(began)})
	}
}

// p99Of returns milliseconds.
func p99Of(all [][]echoed, from, to int64) float64 {
	var took []time.Duration
	for _, e := range slices.Concat(all...) {
		if due := e.due.UnixNano(); from <= due && due <= to {
			took = append(took, e.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)-1)*99/100].Seconds() * 1000
}
