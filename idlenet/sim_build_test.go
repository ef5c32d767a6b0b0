package idlenet

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// newSimWorld builds the world of a seed.
func newSimWorld(seed uint64) *simWorld {
	w := &simWorld{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x1d1e))}
	switch w.rng.IntN(10) {
	case 0:
		w.kind, w.quiet = simNetworkOut, true
	case 1, 2:
		w.kind = simCalm
	}
	w.now = w.upTo(10 * time.Second)
	w.jiffy = []time.Duration{time.Millisecond, 4 * time.Millisecond, 10 * time.Millisecond}[w.rng.IntN(3)]
	w.faulty = w.kind == simAnything
	w.unix = w.kind != simNetworkOut && w.one(5)
	w.addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}
	if w.unix {
		w.addr = &net.UnixAddr{Net: "unix", Name: "simulated"}
	}
	w.chooseConfig()
	w.chooseServer()
	w.readsToStop = 1 + w.rng.IntN(20000)
	w.listen(1 + w.rng.IntN(3))
	w.populate()
	w.planFaults()
	return w
}

// listen makes the Listener. The number of shards does not depend on the machine.
func (w *simWorld) listen(shards int) {
	w.inner.w = w
	elapsed := func() mono.Time { return mono.Time(w.elapsed()) }
	w.ln = newListener(&w.inner, w.checked, elapsed, w.ask)
	w.ln.run, w.ln.spawn = w.startJudge, w.spawn
	w.ln.shards = nil
	for n := range shards {
		w.ln.shards = append(w.ln.shards, newShard(w.ln, uint32(n+1)))
	}
}

// newQuietWorld builds a world without faults and without connections, for a test of one promise.
func newQuietWorld(t testing.TB, cfg Config) *simWorld {
	w := &simWorld{
		quiet: true, rng: rand.New(rand.NewPCG(1, 1)), kind: simCalm, now: time.Second, horizon: time.Hour, jiffy: time.Millisecond,
		addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}, server: simManners{late: 100 * time.Microsecond, work: time.Millisecond},
	}
	if cfg.OnReap == nil {
		cfg.OnReap = w.onReap
	}
	checked, err := cfg.check(w.addr, 0, nil)
	require.NoError(t, err)
	w.cfg, w.checked, w.longest = cfg, checked, checked.Limits.Longest()
	w.listen(2)
	t.Cleanup(func() { require.Nil(t, w.failure) })
	return w
}

// change changes the Config of a quiet world.
func (w *simWorld) change(t testing.TB, edit func(*Config)) {
	w.updatedAt = w.now
	require.NoError(t, w.ln.Update(func(c *Config) {
		edit(c)
		w.cfg = *c
	}))
}

// accept accepts a connection of a peer that sends only what the test sends. Its server reads at
// once, and does not close it.
func (w *simWorld) accept() *simLife {
	l := w.newLife()
	l.simServer = simServer{deaf: true}
	*l.sock.peer = simPeer{w: w, sock: l.sock, style: simSilent, delay: time.Millisecond, space: 1 << 16}
	l.accept()
	return l
}

// chooseConfig sets one to four limits.
func (w *simWorld) chooseConfig() {
	cfg := Config{Stamp: w.unix || w.one(4)}
	for range 1 + w.rng.IntN(4) {
		w.chooseLimit(&cfg, w.rng.IntN(12))
	}
	if w.kind == simNetworkOut {
		limit := w.skewed(time.Second, 5*time.Second)
		cfg = Config{ReadTimeout: limit}
		if w.one(2) {
			cfg = Config{AllTimeout: limit}
		}
	} else {
		w.chooseRest(&cfg)
	}
	cfg.OnReap = w.onReap
	shortest := 5 * time.Second
	for _, s := range configtable.Net.Deadlines(&cfg) {
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
	cfg.Reset = [][]Reason{nil, {}, {reap.ReadIdle, reap.WriteStall, reap.Kicked}}[w.rng.IntN(3)]
	checked, err := cfg.check(w.addr, 0, nil)
	if err != nil {
		panic("BUG: simulated Config: " + err.Error())
	}
	w.cfg, w.checked = cfg, checked
	w.horizon = w.now + w.skewed(w.longest, 6*w.longest)
}

// limit returns a timeout.
func (w *simWorld) limit() time.Duration {
	return w.skewed(200*time.Millisecond, 5*time.Second).Round(time.Millisecond)
}

func (w *simWorld) chooseLimit(cfg *Config, which int) {
	if w.unix && (which == 3 || which == 4 || which == 8) {
		which = 0
	}
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
		cfg.MinRate = MinRate{BytesPerSecond: 1 + w.rng.IntN(100), Window: w.limit(), Always: w.one(2)}
		if w.one(2) {
			cfg.MinRate.Grace = w.limit()
		}
	case 9:
		cfg.Heartbeat = Heartbeat{
			Interval: w.limit(), Retry: w.limit(), MaxMissed: 1 + w.rng.IntN(3),
			Ping: func(c net.Conn) { w.lifeOf(c).pinged() },
		}
		if w.one(3) {
			cfg.Heartbeat.Jitter = -1
		}
	case 10:
		cfg.MaxAge = w.limit()
		if w.one(2) {
			cfg.MaxAgeGrace = w.limit()
			cfg.Goodbye = w.goodbye
		}
	case 11:
		cfg.MaxConnections, cfg.ShedProtect = 5+w.rng.IntN(60), w.limit()/4
	}
}

func (w *simWorld) goodbye(c net.Conn, reason *ReapError) {
	l := w.lifeOf(c)
	w.simCounts.goodbyes++
	if l.goodbyes++; l.goodbyes > 1 || reason.Reason != reap.MaxAge || reason.Grace == 0 {
		w.violate(l, "one Goodbye is called, for reap.MaxAge", reason.Error())
	}
	if due := l.openedFrom + w.cfg.MaxAge*9/10; w.now < due {
		w.violate(l, "no Goodbye before reap.MaxAge", "it is called")
	}
}

func (w *simWorld) chooseRest(cfg *Config) {
	if w.one(4) {
		cfg.Jitter = w.rng.Float64() * 0.5
	}
	switch w.rng.IntN(8) {
	case 0:
		cfg.OutageGrace = -1
	case 1:
		cfg.OutageGrace = w.limit()
	}
	if w.one(2) {
		cfg.CloseGrace = w.limit()
	}
	cfg.ObserveOnly = w.one(12)
	cfg.KeepClosed = w.rng.IntN(3)
	if w.decides = w.one(3); w.decides {
		cfg.OnIdle = func(c net.Conn, ev Event) Action { return w.lifeOf(c).idle(ev) }
	}
}

// chooseServer chooses the habits of the server.
func (w *simWorld) chooseServer() {
	w.server = simManners{late: 100 * time.Microsecond, work: time.Millisecond}
	if w.kind == simNetworkOut {
		return
	}
	w.slowCalls = w.one(4)
	if w.one(3) {
		w.server.late = w.skewed(time.Millisecond, w.longest)
	}
	if w.one(3) {
		w.server.work = w.skewed(time.Millisecond, 2*w.longest)
	}
	if w.one(2) {
		w.server.reply = []int{10, 1000, 40000}[w.rng.IntN(3)]
	}
}

// populate makes connections.
func (w *simWorld) populate() {
	n := int(w.skewed(1, 150))
	within := w.upTo(w.longest)
	if w.kind == simNetworkOut {
		n, within = 32+w.rng.IntN(100), w.cfg.Tick
	}
	for range n {
		w.after(w.upTo(within), w.connect)
	}
}

// connect makes a new connection.
func (w *simWorld) connect() {
	l := w.newLife()
	l.sock.peer.begin()
	w.later(w.now+w.upTo(w.server.late), l.accept)
}

func (w *simWorld) newLife() *simLife {
	l := &simLife{w: w, id: len(w.all), keeps: w.one(4), simServer: w.newServer()}
	p := w.newPeer()
	l.sock = &simSock{w: w, life: l, peer: p, lastRecv: w.now, lastSend: w.now, room: 1000 + w.rng.IntN(60000)}
	p.sock, l.conn = l.sock, w.newConn()
	l.conn.simSock = l.sock
	w.all = append(w.all, l)
	return l
}

// newConn returns a connection at a new address, or at one of a connection that was forgotten. Its
// shard is chosen by chance.
func (w *simWorld) newConn() *simConn {
	for i, l := range w.dropped {
		if w.now > l.goneAt+w.cfg.Tick && l.finished {
			w.dropped = append(w.dropped[:i], w.dropped[i+1:]...)
			w.reused++
			return l.conn
		}
	}
	for shard := w.rng.IntN(len(w.ln.shards)); ; {
		if c := new(simConn); w.ln.shard(c).Number == uint32(shard+1) {
			return c
		}
	}
}

func (w *simWorld) newServer() (s simServer) {
	if w.kind == simNetworkOut {
		return s
	}
	s.use = simUse(w.rng.IntN(3))
	s.deaf, s.again, s.hijacks, s.messages, s.restful = w.one(4), w.one(6), w.one(4), w.one(2), w.one(4)
	if w.one(5) {
		s.deadline = w.upTo(2 * w.longest)
	}
	return s
}

func (w *simWorld) newPeer() *simPeer {
	p := &simPeer{w: w, style: simStyle(w.rng.IntN(int(simStyles))), message: 1 + w.rng.IntN(200)}
	base := w.checked.Limits.ShortestIdle()
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
	if w.unix {
		p.delay = 10 * time.Microsecond
	}
	if w.kind == simNetworkOut {
		p.style, p.interval, p.until, p.appetite, p.returns = simHeartbeats, w.skewed(base/16, base/3), 0, 0, false
		p.delay = w.skewed(20*time.Microsecond, time.Millisecond)
	}
	return p
}

// planFaults plans faults, and calls of the operator.
func (w *simWorld) planFaults() {
	if w.kind == simNetworkOut {
		w.planNetworkOut()
		return
	}
	for range w.rng.IntN(3) {
		at := w.now + w.upTo(w.horizon-w.now)
		switch w.rng.IntN(6) {
		case 0, 1:
			w.later(at, w.kick)
		case 2, 3:
			w.later(at, w.update)
		case 4:
			w.later(at, w.startDrain)
		case 5:
			w.later(at, func() {
				w.inspecting = true
				_, _ = w.ln.Inspect(context.Background(), reap.Query{Limit: 5, States: true, Closed: true})
				w.inspecting = false
			})
		}
	}
	if w.kind == simCalm {
		return
	}
	if w.one(4) {
		w.loss = []float64{0.01, 0.1}[w.rng.IntN(2)]
	}
	for range w.rng.IntN(4) {
		at := w.now + w.upTo(w.horizon-w.now)
		if w.one(2) {
			w.later(at, func() { w.stop(w.stopLength(), w.one(2)) })
			continue
		}
		w.after(at-w.now, func() {
			w.netDown = simInterval{w.now, w.now + w.upTo(w.longest)}
			w.netDowns++
		})
	}
}

// planNetworkOut plans one outage of the server's own network. It begins when all connections have
// been heard for some time. Deadlines pass during the outage, and it ends before verdicts have been
// held for long enough.
func (w *simWorld) planNetworkOut() {
	base := w.checked.Limits.ShortestIdle()
	at := w.now + base + w.upTo(base)
	d := base/4 + w.upTo(base*6/10)
	w.horizon = at + 4*base + d
	w.after(at-w.now, func() {
		w.netDown = simInterval{w.now, w.now + d}
		w.netDowns++
		w.trace(nil, "network is down until", w.netDown.to)
	})
}

func (w *simWorld) startDrain() {
	if w.drain.at != 0 {
		return
	}
	spread := w.upTo(w.longest / 2)
	w.drain.at, w.drain.deadline = w.now, spread+w.upTo(w.longest)
	w.trace(nil, "Drain", spread, w.drain.deadline)
	if err := w.ln.Drain(spread, w.drain.deadline); err != nil {
		w.violate(nil, "Drain takes its arguments", err.Error())
	}
	w.endObserveOnly()
	w.drain.done, w.updatedAt = w.now, w.now
}

func (w *simWorld) endObserveOnly() {
	if w.cfg.ObserveOnly {
		w.cfg.ObserveOnly, w.observedTo = false, w.now
	}
}

// update changes one limit, and ends ObserveOnly.
func (w *simWorld) update() {
	cfg, limit := &w.cfg, max(w.limit(), 5*w.cfg.Tick)
	w.endObserveOnly()
	err := w.ln.Update(func(c *Config) {
		c.ObserveOnly = false
		switch {
		case c.ReadTimeout > 0:
			c.ReadTimeout = limit
		case c.WriteStallTimeout > 0:
			c.WriteStallTimeout = limit
		case c.FirstByteTimeout > 0:
			c.FirstByteTimeout = limit
		default:
			c.HandshakeTimeout = limit
		}
		*cfg = *c
	})
	if err != nil {
		w.violate(nil, "Update takes the Config", err.Error())
	}
	w.trace(nil, "Update", cfg.LogValue())
	w.updates++
	w.longest = max(w.longest, limit)
	w.updatedAt = w.now
}
