package wheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

const (
	benchTick    = 100 * time.Millisecond
	benchSlots   = 1024
	benchTimeout = 60 * time.Second
)

// A subject is a layout in the benchmark. The caller has the handle of an entry, as a connection
// has: handles and owners are read in order, the entries lie in random order.
type subject interface {
	add(i int, deadline time.Duration)
	move(i int, deadline time.Duration)
	remove(i int)
	advance(now time.Duration) int
}

// idWheel is the Wheel with a payload of four bytes, as idle/ uses it.
type idWheel struct {
	w       *Wheel[uint32]
	handles []Handle
}

func newIDWheel(n int) *idWheel {
	w, err := New[uint32](benchTick, benchSlots)
	if err != nil {
		panic(err)
	}
	return &idWheel{w: w, handles: make([]Handle, n)}
}

func (s *idWheel) add(i int, d time.Duration)  { s.handles[i] = s.w.Schedule(d, uint32(i)) }
func (s *idWheel) move(i int, d time.Duration) { s.handles[i] = s.w.Reschedule(s.handles[i], d) }
func (s *idWheel) remove(i int)                { s.w.Cancel(s.handles[i]) }
func (s *idWheel) advance(now time.Duration) int {
	n, _ := s.w.Advance(now, math.MaxInt, func(Handle, uint32) {})
	return n
}

// listWheel is the textbook layout: a doubly linked list per slot. The pointers are embedded in
// owners that are allocated one by one, and each reschedule moves the owner to another list.
type listWheel struct {
	slots  [benchSlots]*owner
	owners []*owner
	cursor int64
}

type owner struct {
	prev, next *owner
	deadline   int64
	slot       int32
	_          [84]byte // an owner is a connection, not only its timer
}

func newListWheel(n int) *listWheel {
	s := &listWheel{owners: make([]*owner, n)}
	for i := range s.owners {
		s.owners[i] = new(owner)
	}
	rand.Shuffle(n, func(i, j int) { s.owners[i], s.owners[j] = s.owners[j], s.owners[i] })
	return s
}

func (s *listWheel) link(o *owner, at int64) {
	o.deadline = at
	o.slot = int32((at + int64(benchTick) - 1) / int64(benchTick) % benchSlots)
	o.prev, o.next = nil, s.slots[o.slot]
	if o.next != nil {
		o.next.prev = o
	}
	s.slots[o.slot] = o
}

func (s *listWheel) unlink(o *owner) {
	if o.next != nil {
		o.next.prev = o.prev
	}
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		s.slots[o.slot] = o.next
	}
	o.prev, o.next = nil, nil
}

func (s *listWheel) add(i int, d time.Duration) { s.link(s.owners[i], int64(d)) }
func (s *listWheel) move(i int, d time.Duration) {
	s.unlink(s.owners[i])
	s.link(s.owners[i], int64(d))
}
func (s *listWheel) remove(i int) { s.unlink(s.owners[i]) }
func (s *listWheel) advance(now time.Duration) (expired int) {
	for target := int64(now / benchTick); s.cursor < target; {
		s.cursor++
		for o := s.slots[s.cursor%benchSlots]; o != nil; {
			next := o.next
			if o.deadline <= int64(now) {
				s.unlink(o)
				expired++
			}
			o = next
		}
	}
	return expired
}

// lazyListWheel is the listWheel with the lazy reschedule of the Wheel, to measure it separately.
type lazyListWheel struct{ *listWheel }

func (s lazyListWheel) move(i int, d time.Duration) { s.owners[i].deadline = int64(d) }
func (s lazyListWheel) advance(now time.Duration) (expired int) {
	for target := int64(now / benchTick); s.cursor < target; {
		s.cursor++
		for o := s.slots[s.cursor%benchSlots]; o != nil; {
			next := o.next
			s.unlink(o)
			if o.deadline <= int64(now) {
				expired++
			} else {
				s.link(o, o.deadline)
			}
			o = next
		}
	}
	return expired
}

var layouts = []struct {
	name string
	make func(n int) subject
}{
	{"ids", func(n int) subject { return newIDWheel(n) }},
	{"list", func(n int) subject { return newListWheel(n) }},
	{"lazylist", func(n int) subject { return lazyListWheel{newListWheel(n)} }},
}

// fill adds n entries, in random order and due in random order, over one timeout.
func fill(s subject, n int) {
	due := rand.Perm(n)
	for _, i := range rand.Perm(n) {
		s.add(i, benchTimeout*time.Duration(due[i]+1)/time.Duration(n))
	}
}

func BenchmarkLayout(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		for _, l := range layouts {
			b.Run(fmt.Sprintf("op=reschedule/n=%d/layout=%s", n, l.name), func(b *testing.B) {
				s := l.make(n)
				fill(s, n)
				deadline, i := benchTimeout, 0
				for b.Loop() {
					deadline += benchTimeout / 1_000_000
					s.move(i, deadline)
					if i++; i == n {
						i = 0
					}
				}
			})
			b.Run(fmt.Sprintf("op=schedule+cancel/n=%d/layout=%s", n, l.name), func(b *testing.B) {
				s := l.make(n)
				fill(s, n)
				i := 0
				for b.Loop() {
					s.remove(i)
					s.add(i, 2*benchTimeout)
					if i++; i == n {
						i = 0
					}
				}
			})
			b.Run(fmt.Sprintf("op=expire/n=%d/layout=%s", n, l.name), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					s := l.make(n)
					fill(s, n)
					b.StartTimer()
					if got := s.advance(benchTimeout); got != n {
						b.Fatalf("%d of %d expired", got, n)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
			})
			if l.name != "list" { // the list files nothing again
				b.Run(fmt.Sprintf("op=refile/n=%d/layout=%s", n, l.name), func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						s := l.make(n)
						fill(s, n)
						for i := range n {
							s.move(i, benchTimeout+benchTimeout*time.Duration(i)/time.Duration(n))
						}
						b.StartTimer()
						if got := s.advance(benchTimeout - 1); got != 0 {
							b.Fatalf("%d expired", got)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
				})
			}
		}
	}
}

// BenchmarkLayoutGC times a forced collection, which follows the pointers of the list. The owners
// are alive in both layouts, because each connection has one.
func BenchmarkLayoutGC(b *testing.B) {
	const n = 1_000_000
	owners := newListWheel(n)
	b.Run("op=gc/layout=none", func(b *testing.B) {
		for b.Loop() {
			runtime.GC()
		}
	})
	b.Run("op=gc/layout=ids", func(b *testing.B) {
		s := newIDWheel(n)
		fill(s, n)
		for b.Loop() {
			runtime.GC()
		}
		runtime.KeepAlive(s)
	})
	b.Run("op=gc/layout=list", func(b *testing.B) {
		fill(owners, n)
		for b.Loop() {
			runtime.GC()
		}
	})
	runtime.KeepAlive(owners)
}

// BenchmarkReschedule moves random entries to later deadlines, and does the same to Go's own
// timers.
func BenchmarkReschedule(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		order := rand.Perm(n)
		b.Run(fmt.Sprintf("n=%d/timer=wheel", n), func(b *testing.B) {
			s := newIDWheel(n)
			fill(s, n)
			handles := make([]Handle, n)
			for i, at := range order {
				handles[i] = s.handles[at]
			}
			deadline, i := benchTimeout, 0
			for range b.N { // b.Loop would take as long as the measured work
				deadline += benchTimeout / 1_000_000
				s.w.Reschedule(handles[i], deadline)
				if i++; i == n {
					i = 0
				}
			}
		})
		b.Run(fmt.Sprintf("n=%d/timer=time.Timer", n), func(b *testing.B) {
			timers := make([]*time.Timer, n)
			for _, at := range order {
				timers[at] = time.AfterFunc(time.Hour+time.Duration(rand.IntN(1e9)), func() {})
			}
			i := 0
			for range b.N {
				timers[i].Reset(time.Hour + time.Duration(i))
				if i++; i == n {
					i = 0
				}
			}
			b.StopTimer()
			for _, t := range timers {
				t.Stop()
			}
		})
	}
}

// BenchmarkDue advances repeatedly over one timeout of entries, due in random order. They expire
// and are scheduled again, or have been rescheduled and are filed again.
func BenchmarkDue(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		for _, expire := range []bool{true, false} {
			name := "refile"
			if expire {
				name = "expire"
			}
			b.Run(fmt.Sprintf("op=%s/n=%d", name, n), func(b *testing.B) {
				s := newIDWheel(n)
				fill(s, n)
				now, expired := time.Duration(0), 0
				for range b.N {
					b.StopTimer()
					for i, at := range rand.Perm(n) {
						d := now + benchTimeout + benchTimeout*time.Duration(at+1)/time.Duration(n)
						switch {
						case !expire:
							s.move(i, d)
						case now > 0:
							s.add(i, d-benchTimeout)
						}
					}
					now += benchTimeout
					b.StartTimer()
					expired += s.advance(now)
				}
				if expire && expired != n*b.N {
					b.Fatalf("%d of %d expired", expired, n*b.N)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
			})
		}
	}
}

// BenchmarkBytesPerEntry measures the memory of one pending entry with a payload of four bytes.
func BenchmarkBytesPerEntry(b *testing.B) {
	const n = 1_000_000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		w, err := New[uint32](benchTick, benchSlots)
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			w.Schedule(benchTimeout*time.Duration(i+1)/n, uint32(i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/entry")
		runtime.KeepAlive(w)
	}
}

// BenchmarkSlots measures the time to read all slots, as a page that shows a wheel does.
func BenchmarkSlots(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		for _, dead := range []bool{false, true} {
			b.Run(fmt.Sprintf("entries=%d/cancelled=%v", n, dead), func(b *testing.B) {
				w, _ := New[uint32](100*time.Millisecond, 1024)
				for i := range n {
					w.Schedule(time.Duration(rand.IntN(60_000))*time.Millisecond, uint32(i))
				}
				if dead {
					w.Cancel(w.Schedule(time.Hour, 1))
				}
				for b.Loop() {
					for range w.Slots() {
					}
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(n), "ns/entry")
			})
		}
	}
}
