package idle

import (
	"time"

	"github.com/panjf2000/gnet/v2"
)

// A simMark is the knowledge of the oracle about the OutputMarks of a connection.
type simMark struct {
	stopped bool          // OnWritable was told so last
	exempt  bool          // before and after the call
	lowFrom time.Duration // stopped, with output at Low or below since then; 0 if it is not
}

// setMarks sets marks in three of 16 worlds.
func (w *simWorld) setMarks() {
	switch w.Seed % 16 {
	case 6, 8, 13:
		high := 1 + int(w.Seed/16%50000)
		w.cfg.OutputMarks = OutputMarks{High: high, Low: 1 + int(w.Seed/7%uint64(high)), OnWritable: w.onWritable}
	}
}

func (w *simWorld) onWritable(gc gnet.Conn, writable bool) {
	c := gc.(*simConn)
	m, marks := &c.mark, w.cfg.OutputMarks
	w.N["marks passed"]++
	w.Trace(c.life, "OnWritable", writable, c.outbound)
	switch {
	case !c.life.IsOpen:
		w.Violate(c.life, "OnWritable is not called after OnClose", "%v", writable)
	case writable != m.stopped:
		w.Violate(c.life, "OnWritable is never told the same twice in a row", "%v", writable)
	case !writable && c.outbound <= marks.High, writable && c.outbound > marks.Low && !m.exempt:
		w.Violate(c.life, "OnWritable is told when output has passed a mark", "%v at %d, marks %d and %d", writable, c.outbound, marks.High, marks.Low)
	}
	c.checkLow()
	m.stopped, m.lowFrom = !writable, 0
	if writable && w.One(4) {
		_ = c.write(1 + w.Rand.IntN(2*marks.High))
	}
}

// noteOutput notes how much output waits.
func (c *simConn) noteOutput() {
	if m := &c.mark; !m.stopped || c.outbound > c.el.w.cfg.OutputMarks.Low {
		m.lowFrom = 0
	} else if m.lowFrom == 0 {
		m.lowFrom = c.el.w.Now
	}
	c.life.Buffers(c.outbound)
}

// checkLow checks that a producer does not wait for ever.
func (c *simConn) checkLow() {
	if m := c.mark; m.lowFrom != 0 {
		c.life.CheckDue("OnWritable is told that output has fallen", m.lowFrom+c.el.w.Set.Tick)
	}
}

// checkHigh checks that a producer is told to stop when a call of the handler returns.
func (c *simConn) checkHigh() {
	w := c.el.w
	if high := w.cfg.OutputMarks.High; high > 0 && c.opened && c.outbound > high && !c.mark.stopped && !c.mark.exempt {
		w.Violate(c.life, "OnWritable is told when a call of the handler returns", "%d bytes wait, mark %d", c.outbound, high)
	}
}
