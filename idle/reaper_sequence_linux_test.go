package idle

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// sequenceConfig is the Config of servers in a sequence of outages.
var sequenceConfig = Config{ReadTimeout: 2 * time.Second}

func init() { plays["sequence"] = play{cfg: sequenceConfig} }

const (
	sequenceLiving = 300
	sequenceDead   = 50
)

// TestSequencesOfOutagesCloseNoLivingClient has sequences of one to six outages, 0.1 to 1.6
// timeouts long and 0.1 to 1.5 apart: the server is stopped, packets are lost, or both. Each living
// client has an interval of its own, of 0.3 to 0.9 timeouts. The dead ones are frozen programs.
// IDLEWHEEL_SEQUENCES is the number of sequences, and IDLEWHEEL_BASE_SEED the seed of the first.
func TestSequencesOfOutagesCloseNoLivingClient(t *testing.T) {
	t.Parallel()
	number, base := 2, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("IDLEWHEEL_SEQUENCES")); err == nil {
		number = n
	}
	if seed, err := strconv.ParseUint(os.Getenv("IDLEWHEEL_BASE_SEED"), 10, 64); err == nil {
		base = seed
	}
	for n := range uint64(number) {
		t.Run(strconv.FormatUint(base+n, 10), func(t *testing.T) {
			t.Parallel()
			needs.Descriptors(t, sequenceLiving+sequenceDead)
			fair.Try(t, func(t testing.TB) { playSequence(t, rand.New(rand.NewPCG(base+n, 0))) })
		})
	}
}

func playSequence(t testing.TB, rng *rand.Rand) {
	timeout := sequenceConfig.ReadTimeout
	wire := faultynet.New(t)
	server := startPlay(t, "sequence", "tcp://"+wire.Host()+":0")
	f := fleetOf(t, wire, faultynet.PortOf(server.addr), sequenceLiving+sequenceDead)
	b := f.beat(sequenceLiving, rng, timeout*3/10, timeout*9/10)
	part := func(least, most float64) time.Duration {
		return time.Duration((least + rng.Float64()*(most-least)) * float64(timeout))
	}
	f.send(sequenceLiving, sequenceLiving+sequenceDead, "the last beat")
	time.Sleep(part(2, 3)) // the server learns how often it hears them
	for range 1 + rng.IntN(6) {
		kind, length, pause := rng.IntN(3), part(0.1, 1.6), part(0.1, 1.5)
		t.Logf("at %v: %s for %v, then %v without an outage", time.Duration(f.now()), [...]string{"stopped", "packets lost", "both"}[kind], length, pause)
		mend := func() {}
		if kind > 0 {
			mend = wire.Lose(t, faultynet.ToServer, faultynet.ToClient)
		}
		if kind != 1 {
			server.pause()
		}
		time.Sleep(length)
		mend()
		if kind != 1 {
			server.resume(0)
		}
		time.Sleep(pause)
	}
	ended := time.Now()
	time.Sleep(4 * timeout)
	cut, late := 0, 0
	for i, by := range b.end() {
		switch isLate := by > timeout/25; {
		case isLate:
			late++
		case f.conns[i].closedAt.Load() != 0:
			cut++
		}
	}
	assert.Zero(t, cut, "living clients were closed, besides %d that were late themselves", late)
	server.await("the others are closed", func(a account) bool { return a.closed() >= sequenceDead })
	t.Logf("the dead were closed within %v of the last outage; %d clients were late themselves", time.Since(ended), late)
	server.end()
}

// beats are heartbeats that are sent until end.
type beats struct {
	over    chan struct{}
	sending sync.WaitGroup
	late    []time.Duration // how late each client was at most
}

// beat sends heartbeats from the first n clients. Each has an interval of its own between two
// times.
func (f *fleet) beat(n int, rng *rand.Rand, least, most time.Duration) *beats {
	b := &beats{over: make(chan struct{}), late: make([]time.Duration, n)}
	intervals, next := make([]time.Duration, n), make([]time.Time, n)
	for i := range n {
		intervals[i] = least + time.Duration(rng.Int64N(int64(most-least)))
		next[i] = time.Now().Add(time.Duration(rng.Int64N(int64(intervals[i]))))
	}
	b.sending.Go(func() {
		for {
			select {
			case <-b.over:
				return
			case <-time.After(5 * time.Millisecond):
			}
			for i, at := range next {
				if late := time.Since(at); late >= 0 {
					f.send(i, i+1, "beat")
					b.late[i] = max(b.late[i], time.Since(at))
					next[i] = at.Add(intervals[i])
				}
			}
		}
	})
	return b
}

// end stops the heartbeats. It returns how late each client was.
func (b *beats) end() []time.Duration {
	close(b.over)
	b.sending.Wait()
	return b.late
}
