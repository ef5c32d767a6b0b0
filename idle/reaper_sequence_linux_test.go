package idle

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// sequenceConfig is the Config of servers in a sequence of outages.
var sequenceConfig = Config{ReadTimeout: 2 * time.Second}

func init() { plays["sequence"] = play{cfg: sequenceConfig} }

// The clients of a sequence, on each of its two networks.
const (
	sequenceLiving = 150
	sequenceDead   = 25
)

// TestSequencesOfOutagesCloseNoLivingClient has sequences of one to six outages, 0.1 to 1.6
// timeouts long and 0.1 to 1.5 apart: the server is stopped; all packets are lost, those of one of
// two networks, or 30 % of them; or both, at once or the loss first. Each living client has an
// interval of its own, of 0.3 to 0.95 timeouts. The dead ones are frozen programs. A living client
// may be closed by the exceptions of docs/verdict.md. IDLEWHEEL_SEQUENCES is the number of
// sequences, and IDLEWHEEL_BASE_SEED the seed of the first.
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
			needs.Descriptors(t, 2*(sequenceLiving+sequenceDead))
			fair.Try(t, func(t testing.TB) { playSequence(t, rand.New(rand.NewPCG(base+n, 0))) })
		})
	}
}

// A loss says which packets of a network an outage takes.
type loss int

const (
	noLoss loss = iota
	someLost
	allLost
)

// A sequenceOutage is complete between began and ended, and affects nobody before from and after
// to. All are instants of monotonic.
type sequenceOutage struct {
	from, began, ended, to int64
	stopped                bool    // the server
	lost                   [2]loss // of each network
}

func (o *sequenceOutage) String() string {
	if o.stopped {
		return fmt.Sprintf("stopped, and of the networks %v", o.lost)
	}
	return fmt.Sprint("of the networks ", o.lost)
}

func (l loss) String() string { return [...]string{"none lost", "some lost", "all lost"}[l] }

// randomOutage returns an outage without times.
func randomOutage(rng *rand.Rand) (o sequenceOutage) {
	kind, one := 1+rng.IntN(9), rng.IntN(2) // 1 is a stop alone
	o.stopped = kind%2 == 1
	switch kind / 2 {
	case 1:
		o.lost = [2]loss{allLost, allLost}
	case 2:
		o.lost[one] = allLost
	case 3:
		o.lost = [2]loss{someLost, someLost}
	case 4:
		o.lost[one] = someLost
	}
	return o
}

// play makes the outage happen, and returns it with its times. If the server is stopped and packets
// are lost, the loss may begin earlier. Then these are two outages in a row.
func (o sequenceOutage) play(
	t testing.TB, server *stage, wires [2]*faultynet.Cable, first, length time.Duration,
) (both []sequenceOutage) {
	var mends []func()
	o.from = monotonic()
	for i, lost := range o.lost {
		switch lost {
		case someLost:
			mends = append(mends, wires[i].LoseIf(t, "ether type ip numgen random mod 100 < 30", faultynet.ToServer, faultynet.ToClient))
		case allLost:
			mends = append(mends, wires[i].Lose(t, faultynet.ToServer, faultynet.ToClient))
		}
	}
	if o.stopped && len(mends) > 0 {
		loss := o
		loss.stopped, loss.began = false, monotonic()
		time.Sleep(first)
		loss.ended = monotonic()
		loss.to, o.from = loss.ended, loss.ended
		both = append(both, loss)
	}
	if o.stopped {
		server.pause()
	}
	o.began = monotonic()
	time.Sleep(length)
	o.ended = monotonic()
	for _, mend := range mends {
		mend()
	}
	if o.stopped {
		server.resume(0)
	}
	o.to = monotonic()
	return append(both, o)
}

// A sequenceOracle judges by docs/verdict.md what became of the clients of one of the networks.
type sequenceOracle struct {
	timeout, tick time.Duration
	outages       []sequenceOutage
	network       int
}

// noticed bounds the time after which a loss of packets is noticed. 16 of 300 clients, or 24 of a
// group of 150, must be heard in a time as long as the silence. All are heard once in a timeout.
// After outages they are heard once in as long as the outages took, which is spread.
func (o *sequenceOracle) noticed(one *sequenceOutage, spread time.Duration) time.Duration {
	if one.lost[1-o.network] == allLost {
		return o.timeout/4 + spread/10
	}
	return o.timeout/4 + spread/3
}

// A course is a deadline that outages move.
type course struct{ due, chance, lost int64 }

// add moves the deadline of a peer that was heard at an instant.
func (c *course) add(heard, from, to int64, timeout time.Duration) {
	c.due += max(to-max(from, heard), 0)
	if c.lost == 0 || from >= c.chance {
		c.lost = from
	}
	c.chance = to + to - c.lost + int64(max(timeout/8, 250*time.Millisecond))
	c.due = max(c.due, c.chance)
}

// due bounds the instant at which a peer may be closed that was heard at an instant. The earlier
// bound leaves out the outages that may not have been noticed; unsure says that there are such.
func (o *sequenceOracle) due(heard int64) (least, most int64, unsure bool) {
	first := heard + int64(o.timeout)
	early, late := course{due: first, chance: heard}, course{due: first, chance: heard}
	var crowd course // of a client that is never heard
	for i := range o.outages {
		one := &o.outages[i]
		if !one.stopped && one.lost[o.network] != allLost {
			continue
		}
		spread := time.Duration(0)
		if crowd.lost != 0 && one.from < crowd.chance {
			spread = time.Duration(one.from - crowd.lost)
		}
		crowd.add(0, one.from, one.to, o.timeout)
		if one.to <= heard {
			continue
		}
		if one.from <= late.due {
			late.add(heard, one.from-int64(o.tick), one.to+int64(o.tick), o.timeout)
		}
		isStop := one.stopped && time.Duration(one.ended-one.began) > o.timeout/10+2*o.tick
		switch silent := time.Duration(min(one.ended, early.due) - one.began); {
		case one.began > early.due:
		case isStop || silent >= o.noticed(one, spread):
			early.add(heard, one.began+int64(o.tick), one.ended-int64(o.tick), o.timeout)
		default:
			unsure = true
		}
	}
	return early.due, late.due, unsure
}

// judge returns why a living client was closed, and whether that is an exception of
// docs/verdict.md.
func (o *sequenceOracle) judge(tr *trace) (why string, excepted bool) {
	least, _, unsure := o.due(tr.Arrived)
	isLong := slices.ContainsFunc(o.outages, func(one sequenceOutage) bool {
		silent := time.Duration(min(one.to, tr.Closed) - one.from)
		return one.lost[o.network] == allLost && tr.Arrived < one.to && silent > o.timeout*37/20
	})
	isRandom := slices.ContainsFunc(o.outages, func(one sequenceOutage) bool {
		return one.lost[o.network] == someLost && one.from < tr.Closed && tr.Arrived < one.to
	})
	switch {
	case !tr.Reaped:
		return "by an error: " + tr.Message, false
	case isLong:
		return "the end of a hold", true
	case tr.Closed < least:
		return fmt.Sprintf("%v too early", time.Duration(least-tr.Closed)), false
	case isRandom:
		return "packets lost at random", true
	case unsure:
		return "an outage that was not noticed", true
	}
	return "although its bytes could arrive", false
}

// describe returns the life of a client in timeouts since the first outage.
func (o *sequenceOracle) describe(tr *trace) string {
	var text strings.Builder
	in := func(at int64) float64 { return float64(at-o.outages[0].from) / float64(o.timeout) }
	fmt.Fprintf(&text, "network %d: heard at %.3f, closed at %.3f, outages", o.network, in(tr.Arrived), in(tr.Closed))
	for i := range o.outages {
		one := &o.outages[i]
		fmt.Fprintf(&text, " [%.3f to %.3f %v]", in(one.began), in(one.to), one)
	}
	return text.String()
}

// A sequenceNetwork is a cable with its clients. The first sequenceLiving of them are alive.
type sequenceNetwork struct {
	wire      *faultynet.Cable
	clients   *fleet
	beats     *beats
	addresses []string
}

func playSequence(t testing.TB, rng *rand.Rand) {
	const n = sequenceLiving + sequenceDead
	timeout := sequenceConfig.ReadTimeout
	server := startPlay(t, "sequence", "tcp://0.0.0.0:0")
	wires := [2]*faultynet.Cable{faultynet.New(t), faultynet.New(t)}
	var networks [2]sequenceNetwork
	for i, wire := range wires { // clients send at once: the server learns how long they are silent
		f := fleetOf(t, wire, faultynet.PortOf(server.addr), n)
		f.send(0, n, "the first beat")
		networks[i] = sequenceNetwork{wire: wire, clients: f, beats: f.beat(sequenceLiving, rng, timeout*3/10, timeout*95/100)}
		for j := range n {
			networks[i].addresses = append(networks[i].addresses, f.addressOf(j))
		}
	}
	times := func(least, most float64) time.Duration {
		return time.Duration((least + rng.Float64()*(most-least)) * float64(timeout))
	}
	time.Sleep(times(1, 1.5))
	server.awaitOpen(2 * n)
	for i := range networks {
		networks[i].clients.send(sequenceLiving, n, "the last beat")
	}
	time.Sleep(times(0.5, 0.9))
	var outages []sequenceOutage
	for range 1 + rng.IntN(6) {
		o, first, length, pause := randomOutage(rng), max(times(-1.2, 1.2), 0), times(0.1, 1.6), times(0.1, 1.5)
		outages = append(outages, o.play(t, server, wires, first, length)...)
		t.Logf("%v for %v, then %v without an outage", &o, length, pause)
		time.Sleep(pause)
	}
	time.Sleep(4 * timeout)
	living := server.account().by()
	all := server.await("the dead are closed", func(a account) bool { return a.closed() >= 2*sequenceDead }).by()
	for i := range networks {
		o := sequenceOracle{timeout, timeout / 100, outages, i}
		networks[i].checkLiving(t, &o, living)
		networks[i].checkDead(t, &o, all)
	}
	server.end()
	if t.Failed() {
		t.Logf("the first outage was at %v; the log of the server:\n%s", time.Now().Add(-time.Duration(monotonic()-outages[0].from)), server.stderr)
	}
}

func (w *sequenceNetwork) checkLiving(t testing.TB, o *sequenceOracle, traces map[string]trace) {
	late, excepted := 0, map[string]int{}
	for j, by := range w.beats.end() {
		tr := traces[w.addresses[j]]
		switch why, isExcepted := o.judge(&tr); {
		case by > o.timeout/25:
			late++
		case tr.Closed == 0:
		case isExcepted:
			excepted[why]++
			t.Logf("closed for %s: every %v, %s", why, w.beats.intervals[j], o.describe(&tr))
		default:
			t.Errorf("a living client was closed %s: every %v, %s", why, w.beats.intervals[j], o.describe(&tr))
		}
	}
	t.Logf("network %d: %d of %d clients were late themselves; living clients closed: %v", o.network, late, sequenceLiving, excepted)
}

// checkDead checks that the dead were closed in time: one limit more if verdicts were held.
func (w *sequenceNetwork) checkDead(t testing.TB, o *sequenceOracle, traces map[string]trace) {
	var lasted []time.Duration
	for _, address := range w.addresses[sequenceLiving:] {
		tr := traces[address]
		_, most, _ := o.due(tr.Arrived)
		if beyond := time.Duration(tr.Closed - most); tr.Closed == 0 || beyond > o.timeout*9/8+room {
			t.Errorf("a dead client was closed %v too late: %s", beyond, o.describe(&tr))
		}
		lasted = append(lasted, time.Duration(tr.Closed-tr.Arrived))
	}
	t.Logf("network %d: the dead were closed %v to %v after their last byte", o.network, part(lasted, 0), part(lasted, 1))
}

// beats are heartbeats that are sent until end.
type beats struct {
	fleet     *fleet
	intervals []time.Duration
	over      chan struct{}
	sending   sync.WaitGroup
	stop      func()
	late      []time.Duration // how late each client was at most
}

// beat sends heartbeats from the first n clients. Each has an interval of its own between two
// times, which begins when it has connected.
func (f *fleet) beat(n int, rng *rand.Rand, least, most time.Duration) *beats {
	b := &beats{fleet: f, over: make(chan struct{}), intervals: make([]time.Duration, n), late: make([]time.Duration, n)}
	next := make([]time.Time, n)
	for i := range n {
		b.intervals[i] = least + time.Duration(rng.Int64N(int64(most-least)))
		next[i] = f.start.Add(time.Duration(f.conns[i].sentUntil.Load() + rng.Int64N(int64(b.intervals[i]))))
	}
	b.stop = sync.OnceFunc(func() { close(b.over); b.sending.Wait() })
	f.t.Cleanup(b.stop) // if the test fails before its end
	b.sending.Go(func() {
		for {
			select {
			case <-b.over:
				for i, at := range next {
					b.late[i] = max(b.late[i], time.Since(at))
				}
				return
			case <-time.After(5 * time.Millisecond):
			}
			for i, at := range next {
				if late := time.Since(at); late >= 0 {
					f.send(i, i+1, "beat")
					b.late[i] = max(b.late[i], time.Since(at))
					next[i] = at.Add(b.intervals[i])
				}
			}
		}
	})
	return b
}

// end stops the heartbeats. It returns how late each client was.
func (b *beats) end() []time.Duration {
	b.stop()
	return b.late
}

// cut stops the heartbeats. It returns how many clients the server has closed, besides those that
// were late by more than a time, and the number of these.
func (b *beats) cut(most time.Duration) (cut, late int) {
	for i, by := range b.end() {
		if by > most {
			late++
		} else {
			cut += b.fleet.lost(i, i+1)
		}
	}
	return cut, late
}
