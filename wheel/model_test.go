package wheel

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A model says when entries have to expire. It knows the contract of a Wheel, and nothing of its
// slots: it keeps the pending entries in a slice.
type model struct {
	clock   int64 // ticks; the wheel has reached a tick from low to high
	low     int64
	high    int64
	pending []*modelEntry
}

type modelEntry struct {
	handle      Handle
	index       int   // in pending, -1 if it is not pending
	deadline    int64 // nanoseconds, -1 during its callback
	first, last int64 // the ticks between which it expires; they differ if the deadline had passed
}

const modelTick = int64(10 * time.Millisecond)

func (m *model) schedule(e *modelEntry, deadline int64) {
	e.deadline = max(deadline, 0)
	due := (e.deadline + modelTick - 1) / modelTick
	e.first, e.last = max(due, m.low), max(due, m.high+1)
}

func (m *model) remove(e *modelEntry) {
	last := m.pending[len(m.pending)-1]
	m.pending[e.index], last.index = last, e.index
	m.pending = m.pending[:len(m.pending)-1]
	e.index = -1
}

// A player runs the operations that its bytes encode on a Wheel and on a model, and compares them
// at each step. Callbacks run operations of their own.
type player struct {
	testing.TB
	next  func() int // a byte
	clock time.Duration
	wheel *Wheel[*modelEntry]
	model model
	stale [16]Handle
	steps int
}

func newPlayer(t testing.TB, next func() int) *player {
	w, err := New[*modelEntry](time.Duration(modelTick))
	require.NoError(t, err)
	return &player{TB: t, next: next, wheel: w}
}

func (p *player) must(ok bool, what string) {
	if !ok {
		p.Helper()
		p.Fatalf("step %d at %v: %s", p.steps, p.clock, what)
	}
}

func (p *player) deadline() int64 {
	switch b := p.next(); {
	case b < 16:
		return int64(p.clock) - int64(b)*modelTick // has passed
	case b < 24:
		return int64(p.clock) + int64(p.next()+1)<<(20+6*(b-16)) // up to a century
	case b < 48:
		return (int64(p.clock)/modelTick + int64(b)*32) * modelTick // on and beside the borders of levels
	default:
		return int64(p.clock) + int64(b)*int64(3*time.Millisecond)
	}
}

func (p *player) some() *modelEntry {
	if len(p.model.pending) == 0 {
		return nil
	}
	return p.model.pending[(p.next()|p.next()<<8)%len(p.model.pending)]
}

func (p *player) operate(op int) {
	p.steps++
	e := p.some()
	switch {
	case op%8 < 3 || e == nil:
		e = &modelEntry{}
		at := p.deadline()
		e.handle = p.wheel.Schedule(time.Duration(at), e)
		p.model.schedule(e, at)
		e.index, p.model.pending = len(p.model.pending), append(p.model.pending, e)
	case op%8 < 5:
		at := p.deadline()
		p.must(p.wheel.Reschedule(e.handle, time.Duration(at)), "a pending entry cannot be rescheduled")
		p.model.schedule(e, at)
	case op%8 == 5:
		p.must(p.wheel.Cancel(e.handle), "a pending entry cannot be cancelled")
		p.retire(e)
	case op%8 == 6:
		h := p.stale[p.next()%len(p.stale)]
		p.must(!p.wheel.Cancel(h), "a stale Handle has cancelled an entry")
		p.must(!p.wheel.Reschedule(h, p.clock), "a stale Handle has rescheduled an entry")
	default:
		at, ok := p.wheel.Deadline(e.handle)
		p.must(ok == (e.deadline >= 0) && (!ok || int64(at) == e.deadline), "Deadline is wrong")
	}
}

func (p *player) retire(e *modelEntry) {
	p.model.remove(e)
	p.stale[p.next()%len(p.stale)] = e.handle
}

// expire checks an entry that expires, and does to it and to others what a callback may do.
func (p *player) expire(h Handle, e *modelEntry) {
	p.must(h == e.handle, "a callback has the wrong Handle")
	p.must(e.index >= 0 && e.deadline >= 0, "an entry expires twice, or after Cancel")
	p.must(e.first <= p.model.clock, "an entry expires early")
	p.must(e.last >= p.model.low, "an entry expires after one of a later tick")
	p.model.low, p.model.high = max(p.model.low, e.first), min(p.model.clock, e.last)
	e.deadline = -1
	b := p.next()
	for range b % 4 { // it may cancel or reschedule this entry
		p.operate(p.next())
	}
	if b >= 192 && e.index >= 0 { // periodic
		at := p.deadline()
		p.must(p.wheel.Reschedule(h, time.Duration(at)), "an entry cannot be rescheduled in its callback")
		p.model.schedule(e, at)
	}
	if e.index >= 0 && e.deadline < 0 {
		p.retire(e)
	}
	if b == 100 {
		panic(errModel)
	}
}

var errModel = errors.New("a callback panics")

func (p *player) advance(op int) {
	jump := int64(p.next())
	switch {
	case op == 255:
		jump *= int64(time.Hour)
	case op > 250:
		jump *= int64(100 * time.Millisecond)
	default:
		jump *= int64(time.Millisecond) / 4
	}
	budget := p.next() % 16
	if op%2 == 0 {
		budget = 1 << 30
	}
	p.clock += time.Duration(jump)
	p.model.clock = int64(p.clock) / modelTick
	p.model.high = p.model.clock
	defer func() {
		p.model.high = p.model.clock
		if v := recover(); v != nil && v != errModel {
			panic(v)
		}
	}()
	if _, more := p.wheel.Advance(p.clock, budget, p.expire); !more {
		p.model.low = p.model.clock
		for _, e := range p.model.pending {
			p.must(e.last > p.model.clock, "an entry has not expired")
		}
	}
}

func (p *player) step() {
	if op := p.next(); op < 176 {
		p.operate(op)
	} else {
		p.advance(op)
	}
	p.must(p.wheel.Len() == len(p.model.pending), "Len is wrong")
	if p.steps%16 != 0 {
		return
	}
	due, ok := p.wheel.NextDue()
	p.must(ok == (len(p.model.pending) > 0), "NextDue is wrong about whether there are entries")
	for _, e := range p.model.pending {
		p.must(int64(due)/modelTick <= max(e.last, p.model.clock), "NextDue is after an entry")
	}
}

// finish lets all entries expire.
func (p *player) finish() {
	check(p, p.wheel, p.clock)
	for _, e := range p.model.pending {
		p.model.clock = max(p.model.clock, e.last)
	}
	p.wheel.Advance(time.Duration(p.model.clock*modelTick), 1<<30, func(_ Handle, e *modelEntry) {
		p.must(e.index >= 0, "an entry expires twice")
		p.model.remove(e)
	})
	p.must(len(p.model.pending) == 0, "an entry is lost")
	check(p, p.wheel, time.Duration(p.model.clock*modelTick))
}

// TestWheelAgainstModel runs random operations. IDLEWHEEL_STEPS sets their number.
func TestWheelAgainstModel(t *testing.T) {
	total := 200_000
	if s := os.Getenv("IDLEWHEEL_STEPS"); s != "" {
		var err error
		total, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	seed := uint64(time.Now().UnixNano())
	done, round := 0, uint64(0)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, round %d", seed, round)
		}
	}()
	for ; done < total; round++ {
		rng := rand.New(rand.NewPCG(seed, round))
		p := newPlayer(t, func() int { return int(rng.Uint32() & 255) })
		length := 1 << rng.IntN(16)
		for p.steps < length {
			p.step()
			if done < 1000 || p.steps%1024 == 0 {
				check(t, p.wheel, p.clock)
			}
		}
		p.finish()
		done += p.steps
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{0, 40, 0, 20, 170, 50, 0})
	f.Add([]byte{0, 10, 0, 10, 2, 0, 200, 3, 0, 255, 255, 1, 0, 0, 1})
	rng := rand.New(rand.NewPCG(1, 1))
	var long []byte
	for range 100 {
		long = binary.LittleEndian.AppendUint64(long, rng.Uint64())
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, data []byte) {
		p := newPlayer(t, func() int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b)
		})
		for range 2000 {
			if len(data) == 0 {
				break
			}
			p.step()
			check(p, p.wheel, p.clock)
		}
		p.finish()
	})
}
