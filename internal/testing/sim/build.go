package sim

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// Build builds the world of a seed, and returns it.
func (w *World) Build(seed uint64, front Front, traits Traits) *World {
	w.init(seed, front, traits)
	w.Kind = [10]Kind{NetworkOut, pause, Calm}[w.Rand.IntN(10)]
	w.Now = w.UpTo(10 * time.Second)
	if w.One(4) {
		w.Family = Family(w.Rand.IntN(int(families)))
	}
	w.Jiffy = []time.Duration{time.Millisecond, 4 * time.Millisecond, 10 * time.Millisecond}[w.Rand.IntN(3)]
	w.multipath = !w.Traits.Loops && w.Family == TCP && w.Stream(0x3b1f7).IntN(4) == 0
	w.Faulty = w.Kind == Anything
	w.chooseSettings()
	w.Decides = w.One(3) && w.Kind != NetworkOut
	if w.Kind != NetworkOut {
		w.front.Choose()
		own := w.Stream(0x707a3) // which leaves the older seeds of package idle as they are
		if limit := &w.Set.OutputLimit; own.IntN(8) == 0 {
			limit.Total = max(limit.Hard, limit.Soft, 5000+own.IntN(200_000))
			w.Reply = 40_000
		}
	}
	w.readsToStop = 1 + w.Rand.IntN(20000)
	w.Changes = w.Kind != NetworkOut && w.extra.IntN(3) == 0
	w.observes = w.Changes && w.extra.IntN(4) == 0
	w.Set.ObserveOnly = w.observes
	front.Start()
	w.populate()
	w.planFaults()
	if w.Changes {
		w.planChanges()
	}
	return w
}

// BuildQuiet builds a world without faults and without connections, for a test of one promise.
func (w *World) BuildQuiet(front Front, traits Traits) {
	w.init(3, front, traits)
	w.Kind, w.Set, w.Now, w.Horizon, w.Jiffy = Calm, &Settings{}, time.Second, time.Hour, time.Millisecond
}

func (w *World) init(seed uint64, front Front, traits Traits) {
	w.Seed, w.front, w.Traits, w.N = seed, front, traits, map[string]int{}
	w.Rand, w.extra = w.Stream(0x1d1e), w.Stream(0xc428f)
}

// Stream returns a stream of random numbers of the seed.
func (w *World) Stream(number uint64) *rand.Rand { return rand.New(rand.NewPCG(w.Seed, number)) }

// ChooseReply chooses the length of replies.
func (w *World) ChooseReply() {
	if w.One(2) {
		w.Reply = []int{10, 1000, 40000}[w.Rand.IntN(3)]
	}
}

func (w *World) populate() {
	n := int(w.Skewed(1, 200))
	if w.Kind == NetworkOut {
		n = 32 + w.Rand.IntN(100)
		if w.two = w.shortestIdle() >= w.Traits.SlowGroups && w.extra.IntN(2) == 0; w.two {
			n += 64
		}
	}
	within := cmp.Or(When(w.Kind != NetworkOut, w.UpTo(w.Longest)), w.Set.Tick)
	for range n {
		w.After(w.UpTo(within), w.connect)
	}
}

func (w *World) connect() {
	l := w.NewLife()
	w.front.Connect(l)
	l.Sock.Peer.begin()
}

// NewLife returns a connection that the kernel has accepted.
func (w *World) NewLife() *Life {
	l := &Life{w: w, ID: len(w.All), acceptedAt: w.Now}
	w.front.Attach(l)
	l.Keeps = w.One(4)
	l.Network = When(w.two, l.ID%2)
	p := w.newPeer()
	l.Sock = &Sock{w: w, Peer: p, life: l, lastRecv: w.Now, lastSend: w.Now, room: 1000 + w.Rand.IntN(60000)}
	p.sock = l.Sock
	w.All = append(w.All, l)
	return l
}

// NewSilentLife returns a connection of a peer that sends only what a test sends.
func (w *World) NewSilentLife() *Life {
	l := w.NewLife()
	*l.Sock.Peer = Peer{w: w, sock: l.Sock, style: silent, delay: time.Millisecond, space: 1 << 16}
	return l
}

// planFaults plans the faults that do not depend on the process.
func (w *World) planFaults() {
	switch w.Kind {
	case NetworkOut:
		w.planNetworkOut()
	case pause:
		at, d := w.Now+w.UpTo(2*w.Longest), w.UpTo(3*w.Longest)
		w.Horizon = at + 2*d + 2*w.Longest
		w.Later(at, func() { w.Stop(d, true) })
	case Anything:
		if w.One(4) {
			w.loss = []float64{0.01, 0.1}[w.Rand.IntN(2)]
		}
		for range w.Rand.IntN(4) {
			at := w.Now + w.UpTo(w.Horizon-w.Now)
			switch w.Rand.IntN(7) {
			case 0, 1:
				w.Later(at, func() { w.Stop(w.stopLength(), w.One(2)) })
			case 2:
				w.After(at-w.Now, func() { w.downFor(w.UpTo(w.Longest)) })
			case 3:
				w.After(at-w.Now, func() { w.acksDown = Interval{w.Now, w.Now + w.UpTo(w.Longest)} })
			case 4:
				w.front.Disturb(at)
			case 5:
				w.Later(at, func() { w.update(*w.Set) }) // all connections are judged again
			case 6:
				w.Later(at, w.startDrain)
			}
		}
	}
}

// downFor makes the server's own network lose all packets for a time.
func (w *World) downFor(d time.Duration) {
	w.netDown = Interval{w.Now, w.Now + d}
	w.N["network outages"]++
	w.Trace(nil, "the network is down until", w.netDown.To)
}

// planNetworkOut plans one outage of the server's own network. It begins when all connections have
// been heard for some time. If holds are unbounded, deadlines pass during the outage, and it ends
// before verdicts have been held for long enough.
func (w *World) planNetworkOut() {
	base := w.shortestIdle()
	at := w.Now + base + w.UpTo(base)
	d := base/4 + w.UpTo(base/4)
	if w.Set.OutageGrace == 0 {
		d = base/4 + w.UpTo(base*6/10)
	}
	w.Horizon = at + 4*base + d
	w.After(at-w.Now, func() {
		w.downFor(d)
		w.netAway.Add(w.netDown.From, w.netDown.To)
	})
}

// planChanges plans calls of the operator: Kick, and changes of one limit, which end ObserveOnly.
func (w *World) planChanges() {
	for range 1 + w.extra.IntN(3) {
		at := w.Now + 1 + time.Duration(w.extra.Int64N(max(int64(w.Horizon-w.Now), 1)))
		kicks, n := w.extra.IntN(2) == 0, w.extra.IntN(5000)
		w.Later(at, func() {
			switch {
			case !kicks:
				w.changeLimit(time.Duration(200+n) * time.Millisecond)
			case len(w.All) > 0:
				if l := w.All[n%len(w.All)]; l.IsOpen && l.Ended == nil && !l.Conn.Decided() {
					w.Trace(l, "is kicked")
					w.N["kicks"]++
					w.front.Kick(l)
				}
			}
		})
	}
}

func (w *World) changeLimit(limit time.Duration) {
	s := *w.Set
	s.ObserveOnly = false
	timeouts := []*time.Duration{&s.ReadTimeout, &s.WriteStallTimeout, &s.FirstByteTimeout, &s.HandshakeTimeout}
	n := slices.IndexFunc(timeouts, func(d *time.Duration) bool { return *d > 0 || d == &s.HandshakeTimeout })
	*timeouts[n] = max(limit, 5*s.Tick)
	w.N["updates"]++
	w.update(s)
}

func (w *World) update(s Settings) {
	for _, l := range w.All {
		l.Check()
	}
	w.Trace(nil, "Update", s)
	isNew := s != *w.Set
	if err := w.front.Update(s); err != nil {
		w.Violate(nil, "Update takes the Config", "%v", err)
	}
	if isNew {
		w.Changed(&s)
	}
}

// Changed is called when other settings are in force. The argument is a pointer to a Config.
func (w *World) Changed(cfg any) {
	before, set := w.Set, *w.Set
	w.Set = &set // verdicts of before have the old ones
	w.Adopt(cfg)
	if w.changedAt = w.Now; before.ObserveOnly && !w.Set.ObserveOnly {
		w.observedTo = w.Now
	}
	w.certain = slices.DeleteFunc(w.certain, func(o Interval) bool { // the server may notice it later
		return o.To >= w.RoundDue-w.Set.Tick && o.length() < w.least(w.Set)
	})
}

func (w *World) startDrain() {
	if w.drain.at != 0 {
		return
	}
	spread := w.UpTo(w.Longest / 2)
	w.drain.at, w.drain.deadline = w.Now, spread+w.UpTo(w.Longest)
	w.Trace(nil, "Drain", spread, w.drain.deadline)
	if err := w.Server.Drain(spread, w.drain.deadline); err != nil {
		w.Violate(nil, "Drain takes its arguments", "%v", err)
	}
	if s := *w.Set; s.ObserveOnly {
		s.ObserveOnly = false
		w.Changed(&s)
	}
	w.drain.done = w.Now
}

// run runs the world until its horizon, and then closes all connections.
func (w *World) run() {
	for !w.Failed() && w.Now < w.Horizon {
		w.Sleep(min(w.Horizon-w.Now, time.Second))
	}
	w.Faulty = false
	if w.Failed() {
		return
	}
	for _, l := range w.All {
		l.Check()
	}
	w.N["holds"] = int(w.Monitor.Holds)
	w.front.Finish()
	w.N["holds of groups"] = int(w.Server.Stats().GroupSuspensions)
	w.N["observed"] = int(w.Server.Stats().Observed.Total())
}

// Settings are the settings of a world. The fields have their names in the Config of a front end.
type Settings struct {
	ReadTimeout, WriteTimeout, AllTimeout                 time.Duration
	Jitter                                                float64
	FirstByteTimeout, HandshakeTimeout, WriteStallTimeout time.Duration
	HalfClosedTimeout                                     time.Duration // of idlenet
	OutputLimit                                           verdict.Output
	MinRate                                               verdict.Rate
	Heartbeat                                             verdict.Heartbeat
	MaxAge, MaxAgeGrace                                   time.Duration
	MaxConnections                                        int
	ShedProtect                                           time.Duration
	ObserveOnly                                           bool
	OutageGrace, Tick                                     time.Duration
}

// CopyTo sets the fields of a Config. The argument is a pointer to the Config.
func (s *Settings) CopyTo(cfg any) {
	copyFields(reflect.ValueOf(cfg).Elem(), reflect.ValueOf(s).Elem())
}

// Adopt takes the settings of a world from a Config. The argument is a pointer to the Config.
func (w *World) Adopt(cfg any) {
	copyFields(reflect.ValueOf(w.Set).Elem(), reflect.ValueOf(cfg).Elem())
	w.Longest = max(200*time.Millisecond, w.Longest, slices.Max(w.Set.deadlines()))
	w.limited = []reap.Reason{reap.Drained}
	for k, d := range w.Set.limits() {
		if d > 0 {
			w.limited = append(w.limited, verdict.First+reap.Reason(k))
		}
	}
}

// copyFields copies the fields that two structs have in common by their names.
func copyFields(to, from reflect.Value) {
	for n := range to.NumField() {
		a, b := to.Field(n), from.FieldByName(to.Type().Field(n).Name)
		switch {
		case !b.IsValid():
		case a.Kind() == reflect.Struct:
			copyFields(a, b)
		default:
			a.Set(b)
		}
	}
}

// limits returns the limits of the reasons, in their order.
func (s *Settings) limits() []time.Duration {
	return []time.Duration{
		s.ReadTimeout, s.WriteTimeout, s.AllTimeout, s.FirstByteTimeout, s.HandshakeTimeout, s.WriteStallTimeout,
		s.OutputLimit.SoftFor, s.MinRate.Window, s.Heartbeat.Interval, s.HalfClosedTimeout, s.MaxAge,
	}
}

// deadlines returns the times that connections have.
func (s *Settings) deadlines() []time.Duration {
	return append(s.limits(), s.MinRate.Grace, s.Heartbeat.Retry, s.MaxAgeGrace, s.ShedProtect)
}

// shortestIdle returns the shortest idle timeout, or the longest limit if there is none.
func (w *World) shortestIdle() time.Duration {
	return shortest(w.Longest, w.Set.ReadTimeout, w.Set.AllTimeout, w.Set.Heartbeat.Interval)
}

// shortest returns the shortest of the times that are set, at most the given one.
func shortest(most time.Duration, all ...time.Duration) time.Duration {
	for _, d := range all {
		if d > 0 {
			most = min(most, d)
		}
	}
	return most
}

// chooseSettings sets one to four limits, and times that fit them.
func (w *World) chooseSettings() {
	s := &Settings{}
	for range 1 + w.Rand.IntN(4) {
		w.chooseLimit(s, w.Rand.IntN(13))
	}
	if w.Kind == NetworkOut {
		limit := w.Skewed(time.Second, 5*time.Second)
		*s = []Settings{{AllTimeout: limit}, {ReadTimeout: limit}}[w.Rand.IntN(2)]
		if w.Family == Unix {
			w.Family = TCP
		}
	}
	if w.One(4) {
		s.Jitter = w.Rand.Float64() * 0.5
	}
	switch grace := w.Rand.IntN(8); {
	case grace == 0 && w.Kind != NetworkOut:
		s.OutageGrace = -1
	case grace == 1:
		s.OutageGrace = w.Limit()
	}
	w.Longest = max(200*time.Millisecond, slices.Max(s.deadlines()))
	shortest := shortest(5*time.Second, s.deadlines()...)
	s.Tick = min(w.Skewed(5*time.Millisecond, 100*time.Millisecond), shortest/5)
	if w.Kind == NetworkOut {
		s.Tick = min(s.Tick, shortest/40)
	}
	w.Set = s
	w.Horizon = w.Now + w.Skewed(w.Longest, 6*w.Longest)
}

func (w *World) chooseLimit(s *Settings, which int) {
	timeouts := []*time.Duration{
		&s.ReadTimeout, &s.ReadTimeout, &s.ReadTimeout, &s.WriteTimeout, &s.AllTimeout,
		&s.FirstByteTimeout, &s.HandshakeTimeout, &s.WriteStallTimeout,
	}
	if which < len(timeouts) {
		*timeouts[which] = w.Limit()
		return
	}
	switch which - len(timeouts) {
	case 0:
		s.OutputLimit = verdict.Output{Soft: 10000, SoftFor: w.Limit()}
		s.OutputLimit.Hard = []int{15000, 0}[w.Rand.IntN(2)]
	case 1:
		s.MinRate = verdict.Rate{BytesPerSecond: 1 + w.Rand.IntN(100), Window: w.Limit(), Always: w.One(2)}
		if w.One(2) {
			s.MinRate.Grace = w.Limit()
		}
	case 2:
		s.Heartbeat = verdict.Heartbeat{Interval: w.Limit(), Retry: w.Limit(), MaxMissed: 1 + w.Rand.IntN(3)}
		if w.One(3) {
			s.Heartbeat.Jitter = -1
		}
	case 3:
		s.MaxAge = w.Limit()
		if w.One(2) {
			s.MaxAgeGrace = w.Limit()
		}
	case 4:
		s.MaxConnections, s.ShedProtect = 5+w.Rand.IntN(60), w.Limit()/4
	}
}
