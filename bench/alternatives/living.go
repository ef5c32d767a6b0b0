package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/process"
)

const (
	livingPeriod = 50 * time.Millisecond // between two messages of a living client
	livingSize   = 64                    // bytes of a message
)

// A group is the argument of a process with living clients. Goroutines of silent clients that end
// would delay those of living ones in the same process.
type group struct {
	Addr string `json:"addr"`
	N    int    `json:"n"`
}

// A span is the time for which a process with living clients is asked.
type span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// latencies are the answer: of all messages that were due in the span.
type latencies struct {
	N   int           `json:"n"`
	P99 time.Duration `json:"p99"`
}

// startLiving starts a process with clients that exchange messages until it is asked.
func startLiving(g group) (*process.Process, error) {
	cmd, err := childCommand(livingVerb, g)
	if err != nil {
		return nil, err
	}
	return process.Start(cmd)
}

// endLiving asks for the latencies in a span. The clients end.
func endLiving(living *process.Process, asked span) (l latencies, err error) {
	question, err := json.Marshal(asked)
	if err != nil {
		return l, err
	}
	return l, living.Ask(string(question), &l)
}

// live is the main function of a process with living clients.
func live(g group, in io.Reader, out io.Writer) error {
	time.AfterFunc(lifetime, func() { os.Exit(1) })
	all := make([][]echoed, g.N)
	stop := make(chan struct{})
	var living sync.WaitGroup
	var mu sync.Mutex
	var failed error // guarded by mu
	for i := range all {
		conn, err := net.Dial("tcp", g.Addr)
		if err != nil {
			return err
		}
		first := time.Now().Add(livingPeriod * time.Duration(i) / time.Duration(g.N))
		living.Go(func() {
			if err := exchange(conn, first, stop, &all[i]); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
		})
	}
	line, err := bufio.NewReader(in).ReadBytes('\n')
	if err != nil {
		return err
	}
	close(stop)
	living.Wait()
	var asked span
	if err := json.Unmarshal(line, &asked); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("a living client: %w", failed)
	}
	return json.NewEncoder(out).Encode(latenciesOf(all, asked))
}

// An echoed is a message that has come back.
type echoed struct {
	due  time.Time
	took time.Duration
}

// exchange sends a message each period, and waits for its echo. A message that is late because an
// echo has not come counts from when it was due.
func exchange(conn net.Conn, due time.Time, stop <-chan struct{}, all *[]echoed) error {
	defer conn.Close()
	message := append(make([]byte, livingSize-1), '\n') // some of the servers read lines
	for ; ; due = due.Add(livingPeriod) {
		began := due
		if wait := time.Until(due); wait > 0 {
			select {
			case <-stop:
				return nil
			case <-time.After(wait):
			}
			began = time.Now()
		}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			return err
		}
		*all = append(*all, echoed{due, time.Since(began)})
	}
}

func latenciesOf(all [][]echoed, asked span) (l latencies) {
	var took []time.Duration
	for _, e := range slices.Concat(all...) {
		if !e.due.Before(asked.From) && !e.due.After(asked.To) {
			took = append(took, e.took)
		}
	}
	if l.N = len(took); l.N > 0 {
		slices.Sort(took)
		l.P99 = took[(l.N-1)*99/100]
	}
	return l
}
