package idle

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

func sortIntervals(all simIntervals) {
	slices.SortStableFunc(all, func(a, b simInterval) int { return int(a.from - b.from) })
}

// newSimWorld builds the world of a seed.
func newSimWorld(seed uint64) *simWorld {
	w := &simWorld{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x1d1e)), fds: make([]bool, 8)}
	for i := range w.fds {
		w.fds[i] = true // in use by others
	}
	switch w.rng.IntN(10) {
	case 0:
		w.kind = simNetworkOut
	case 1:
		w.kind = simPause
	case 2:
		w.kind = simCalm
	}
	w.now = w.upTo(10 * time.Second)
	w.family = simTCP
	if w.one(4) {
		w.family = simFamily(w.rng.IntN(int(simFamily0)))
	}
	w.jiffy = []time.Duration{time.Millisecond, 4 * time.Millisecond, 10 * time.Millisecond}[w.rng.IntN(3)]
	w.faulty = w.kind == simAnything
	w.chooseConfig()
	w.chooseHandler()
	w.chooseTotal()
	w.readsToStop = 1 + w.rng.IntN(20000)
	h := w.handler()
	cfg := w.cfg
	checked, err := cfg.check(0)
	if err != nil {
		panic("BUG: simulated Config: " + err.Error())
	}
	w.checked = checked
	elapsed := func() mono.Time { return mono.Time(w.elapsed()) }
	w.reaper = newReaper(h, w.checked, elapsed, questions{w.ask, w.holdsOutput})
	w.reaper.startDriver = w.startDriver
	w.populate()
	w.planFaults()
	return w
}

func (w *simWorld) handler() gnet.EventHandler {
	h := &simHandler{w: w}
	if w.decides {
		w.cfg.OnIdle = h.onIdle
	}
	return h
}

// chooseConfig sets one to four limits.
func (w *simWorld) chooseConfig() {
	cfg := Config{}
	for range 1 + w.rng.IntN(4) {
		w.chooseLimit(&cfg, w.rng.IntN(13))
	}
	if w.kind == simNetworkOut {
		limit := w.skewed(time.Second, 5*time.Second)
		cfg = Config{ReadTimeout: limit}
		if w.one(2) {
			cfg = Config{AllTimeout: limit}
		}
		if w.family == simUnix {
			w.family = simTCP
		}
	}
	if w.one(4) {
		cfg.Jitter = w.rng.Float64() * 0.5
	}
	switch w.rng.IntN(8) {
	case 0:
		if w.kind != simNetworkOut {
			cfg.OutageGrace = -1
		}
	case 1:
		cfg.OutageGrace = w.limit()
	}
	shortest := 5 * time.Second
	for _, s := range configtable.Idle.Deadlines(&cfg) {
		if s.Value > 0 {
			shortest = min(shortest, s.Value)
			w.longest = max(w.longest, s.Value)
		}
	}
	w.longest = max(w.longest, 200*time.Millisecond)
	cfg.Tick = min(w.skewed(5*time.Millisecond, 100*time.Millisecond), shortest/5)
	if w.kind == simNetworkOut {
		cfg.Tick = min(cfg.Tick, shortest/40)
	}
	checked, err := cfg.check(0)
	if err != nil {
		panic("BUG: simulated Config: " + err.Error())
	}
	w.cfg, w.checked = cfg, checked
	w.horizon = w.now + w.skewed(w.longest, 6*w.longest)
}

func (w *simWorld) chooseLimit(cfg *Config, which int) {
	switch which {
	case 0, 1, 2:
		cfg.ReadTimeout = w.limit()
	case 3:
		cfg.WriteTimeout = w.limit()
	case 4:
		cfg.AllTimeout = w.limit()
	case 5:
		cfg.FirstByteTimeout = w.limit()
	case 6:
		cfg.HandshakeTimeout = w.limit()
	case 7:
		cfg.WriteStallTimeout = w.limit()
	case 8:
		cfg.OutputLimit = OutputLimit{Soft: 10000, SoftFor: w.limit()}
		if w.one(2) {
			cfg.OutputLimit.Hard = 30000
		}
	case 9:
		cfg.MinRate = MinRate{BytesPerSecond: 1 + w.rng.IntN(100), Window: w.limit(), Always: w.one(2)}
		if w.one(2) {
			cfg.MinRate.Grace = w.limit()
		}
	case 10:
		w.chooseHeartbeat(cfg)
	case 12:
		cfg.MaxConnections, cfg.ShedProtect = 5+w.rng.IntN(60), w.limit()/4
	case 11:
		cfg.MaxAge = w.limit()
		if w.one(2) {
			cfg.MaxAgeGrace = w.limit()
			cfg.Goodbye = func(gnet.Conn, *ReapError) []byte { return []byte("bye") }
		}
	}
}

func (w *simWorld) chooseHeartbeat(cfg *Config) {
	cfg.Heartbeat = Heartbeat{
		Interval: w.limit(), Retry: w.limit(), MaxMissed: 1 + w.rng.IntN(3),
		Ping: func(c gnet.Conn) []byte {
			s := c.(*simConn).sock
			s.pingsWritten++
			s.life.pinged()
			w.trace(s.life, "ping")
			return []byte("ping")
		},
	}
	if w.one(3) {
		cfg.Heartbeat.Jitter = -1
	}
}

// chooseHandler chooses the behaviour of the handler.
func (w *simWorld) chooseHandler() {
	w.decides = w.one(3)
	w.keeps = w.decides
	if w.kind == simNetworkOut {
		w.decides, w.keeps = false, false
		return
	}
	w.leaves = w.one(4)
	w.busyHandler = w.one(2)
	if w.one(3) {
		w.slow = w.skewed(time.Millisecond, 2*w.longest)
	}
	if w.one(2) {
		w.reply = []int{10, 1000, 40000}[w.rng.IntN(3)]
	}
	if w.one(8) {
		w.greeting = 1 + w.rng.IntN(100000)
	}
}

// chooseTotal sets a limit of all output in some worlds. It draws from a stream of its own, so that
// the worlds of older seeds stay as they are.
func (w *simWorld) chooseTotal() {
	own := rand.New(rand.NewPCG(w.seed, simTotalStream))
	if w.kind == simNetworkOut || own.IntN(8) != 0 {
		return
	}
	limit := &w.cfg.OutputLimit
	limit.Total = max(limit.Hard, limit.Soft, 5000+own.IntN(200_000))
	w.reply = 40_000
}

// simTotalStream gives none of the older simSeeds a limit of all output.
const simTotalStream = 0x707a3

// populate makes loops and connections.
func (w *simWorld) populate() {
	for i := range 1 + w.rng.IntN(3) {
		el := &simLoop{w: w, id: i, conns: map[int]*simConn{}, perPoll: 1 + w.rng.IntN(128)}
		w.loops = append(w.loops, el)
	}
	n := int(w.skewed(1, 200))
	if w.kind == simNetworkOut {
		n = 32 + w.rng.IntN(100)
	}
	within := w.upTo(w.longest)
	if w.kind == simNetworkOut {
		within = w.cfg.Tick
	}
	for range n {
		w.after(w.upTo(within), w.connect)
	}
}

// connect makes a new connection.
func (w *simWorld) connect() {
	el := w.loops[w.rng.IntN(len(w.loops))]
	life := &simLife{w: w, id: len(w.all), acceptedAt: w.now, el: el, keeps: w.one(4)}
	p := w.newPeer()
	fd := w.takeFD()
	s := &simSock{w: w, fd: fd, peer: p, life: life, lastRecv: w.now, lastSend: w.now, room: 1000 + w.rng.IntN(60000)}
	c := &simConn{el: el, sock: s, fd: fd}
	p.sock, s.conn, life.sock = s, c, s
	w.all = append(w.all, life)
	el.urgent = append(el.urgent, func() error { return el.open(c) })
	el.plan()
	p.begin()
}

func (w *simWorld) newPeer() *simPeer {
	p := &simPeer{w: w, style: simStyle(w.rng.IntN(int(simStyles))), message: 1 + w.rng.IntN(200)}
	base := simShortest(&w.cfg)
	if base == 0 {
		base = w.longest
	}
	p.interval = w.skewed(base/8, base*3/4)
	p.delay = w.skewed(20*time.Microsecond, 20*time.Millisecond)
	p.answers, p.returns = w.one(2), w.one(3)
	p.space = 1000 + w.rng.IntN(60000)
	switch p.style {
	case simEdge:
		p.interval = base - base/10
	case simVanishes, simFinishes, simResets:
		p.until = w.now + w.upTo(2*w.longest)
	}
	switch {
	case w.one(8):
		p.appetite = -1
	case w.one(4):
		p.appetite, p.readsAt = 1+w.rng.IntN(5000), w.upTo(w.longest)
	}
	if w.family == simUnix {
		p.delay = 10 * time.Microsecond
	}
	if w.kind == simNetworkOut {
		p.style, p.interval, p.until, p.appetite, p.returns = simHeartbeats, w.skewed(base/16, base/3), 0, 0, false
		p.delay = w.skewed(20*time.Microsecond, time.Millisecond)
	}
	return p
}

// planFaults plans the faults that do not depend on the process.
func (w *simWorld) planFaults() {
	switch w.kind {
	case simCalm:
		return
	case simNetworkOut:
		w.planNetworkOut()
		return
	case simPause:
		at, d := w.now+w.upTo(2*w.longest), w.upTo(3*w.longest)
		w.horizon = at + 2*d + 2*w.longest
		w.later(at, func() { w.stop(d, true) })
		return
	}
	if w.one(4) {
		w.loss = []float64{0.01, 0.1}[w.rng.IntN(2)]
	}
	for range w.rng.IntN(4) {
		w.planFault(w.now + w.upTo(w.horizon-w.now))
	}
}

func (w *simWorld) planFault(at time.Duration) {
	switch w.rng.IntN(7) {
	case 0, 1:
		w.later(at, func() { w.stop(w.stopLength(), w.one(2)) })
	case 2:
		w.after(at-w.now, func() {
			w.netDown = simInterval{w.now, w.now + w.upTo(w.longest)}
			w.netDowns++
			w.trace(nil, "network is down until", w.netDown.to)
		})
	case 3:
		w.after(at-w.now, func() { w.acksDown = simInterval{w.now, w.now + w.upTo(w.longest)} })
	case 5:
		w.later(at, func() { _ = w.reaper.Update(to(w.cfg)) }) // judges all connections again
	case 6:
		w.later(at, w.startDrain)
	case 4:
		el := w.loops[w.rng.IntN(len(w.loops))]
		w.later(at, func() {
			el.post(func() error { w.trace(nil, "loop", el.id, "is blocked"); w.sleep(w.upTo(w.longest)); return nil })
		})
	}
}

func (w *simWorld) startDrain() {
	if w.drain.at != 0 {
		return
	}
	spread := w.upTo(w.longest / 2)
	w.drain.at, w.drain.deadline = w.now, spread+w.upTo(w.longest)
	w.trace(nil, "Drain", spread, w.drain.deadline)
	if err := w.reaper.Drain(spread, w.drain.deadline); err != nil {
		w.violate(nil, "Drain takes its arguments", err.Error())
	}
	w.drain.done = w.now
}

// planNetworkOut plans one outage of the server's own network. It begins when all connections have
// been heard for some time. If holds are unbounded, deadlines pass during the outage, and it ends
// before verdicts have been held for long enough.
func (w *simWorld) planNetworkOut() {
	base := simShortest(&w.cfg)
	at := w.now + base + w.upTo(base)
	d := base/4 + w.upTo(base/4)
	if w.cfg.OutageGrace == 0 {
		d = base/4 + w.upTo(base*6/10)
	}
	w.horizon = at + 4*base + d
	w.after(at-w.now, func() {
		w.netDown = simInterval{w.now, w.now + d}
		w.netAway.add(w.netDown.from, w.netDown.to)
		w.netDowns++
		w.trace(nil, "network is down until", w.netDown.to)
	})
}

// run runs the world until its horizon, and then stops its engine.
func (w *simWorld) run() {
	for w.failure == nil && w.now < w.horizon {
		w.sleep(min(w.horizon-w.now, time.Second))
	}
	w.faulty = false
	if w.failure != nil {
		return
	}
	for _, l := range w.all {
		l.check()
	}
	w.slow = 0
	for _, el := range w.loops {
		el.running = true
		for len(el.order) > 0 && w.failure == nil {
			_ = el.close(el.order[0], nil)
		}
	}
	if w.failure == nil {
		w.checkStats()
	}
	w.held = w.reaper.Stats().Holds
	if w.stops+w.netDowns > 0 {
		w.faultyLives = w.lives
	}
}

// checkStats checks that the counters of the Reaper add up.
func (w *simWorld) checkStats() {
	s := w.reaper.Stats()
	want := func(what string, got, want uint64) {
		if got != want {
			w.violate(nil, what+" is exact", sprint(what, got, want))
		}
	}
	want("Opened", s.Opened, uint64(w.lives))
	want("Closed", s.Closed, uint64(w.lives))
	want("ClosedByPeer", s.ClosedByPeer, uint64(w.eofs))
	want("Failed", s.Failed, uint64(w.errs))
	want("Connections", uint64(s.Connections), 0)
	want("Connections()", uint64(w.reaper.Connections()), 0)
	want("Entries", uint64(s.Entries), 0)
	for k := verdict.First; k <= verdict.Last; k++ {
		want("Reaped "+k.Error(), s.Reaped[k], w.reaps[k])
	}
}

// simShortest returns the shortest idle timeout of a Config.
func simShortest(cfg *Config) (shortest time.Duration) {
	for _, d := range []time.Duration{cfg.ReadTimeout, cfg.AllTimeout, cfg.Heartbeat.Interval} {
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return shortest
}
