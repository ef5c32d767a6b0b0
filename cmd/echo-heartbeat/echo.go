package main

import (
	"bytes"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

const (
	ping = "PING"
	pong = "PONG"
)

// An echo answers a line PING with PONG and echoes everything else byte for byte.
type echo struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper // gets lines as messages; may be nil
}

// A line is the state of the current line of a connection. It is the Context of the connection. A
// value of one byte is put there without an allocation.
type line uint8

const (
	echoed line = 1 << iota // its beginning was echoed, so its rest is echoed as well
	begun                   // some of its bytes have arrived
)

func (h *echo) OnTraffic(c gnet.Conn) gnet.Action {
	in, _ := c.Peek(-1)
	before, _ := c.Context().(line)
	out, used, open := answer(in, before&echoed != 0)
	after := line(0)
	if open {
		after |= echoed
	}
	if open || used < len(in) {
		after |= begun
	}
	c.SetContext(after)
	h.markMessages(c, before, after, bytes.IndexByte(in, '\n') >= 0)
	// Write comes before Discard: out may be a part of in.
	if len(out) > 0 {
		if _, err := c.Write(out); err != nil {
			return gnet.None // gnet has closed it
		}
	}
	if used > 0 {
		_, _ = c.Discard(used)
	}
	return gnet.None
}

// markMessages tells the Reaper where lines begin and end. complete means that a line has ended.
func (h *echo) markMessages(c gnet.Conn, before, after line, complete bool) {
	if h.reaper == nil {
		return
	}
	conn, _ := h.reaper.Conn(c)
	if complete {
		conn.Ready()
	}
	switch {
	case after&begun != 0 && (complete || before&begun == 0):
		conn.BeginMessage()
	case after&begun == 0 && before&begun != 0:
		conn.EndMessage()
	}
}

func (*echo) OnClose(c gnet.Conn, _ error) gnet.Action {
	if rest, err := c.Peek(-1); err == nil && len(rest) > 0 { // the beginning of an incomplete PING
		_, _ = c.Write(rest)
	}
	return gnet.None
}

// answer returns the answer to the bytes in, the number of bytes that it answers, and whether a
// line is open at their end. The beginning of a possible PING is left for the next call. If in
// holds no PING, out is a part of in.
func answer(in []byte, open bool) (out []byte, used int, lineOpen bool) {
	out = in[:0:0]
	copied := false
	for used < len(in) {
		rest := in[used:]
		if !open {
			if n, end := pingLine(rest); n > 0 {
				if !copied {
					out, copied = append(make([]byte, 0, len(in)), in[:used]...), true
				}
				out = append(append(out, pong...), end...)
				used += n
				continue
			}
			if startsPing(rest) {
				return out, used, false
			}
		}
		n := bytes.IndexByte(rest, '\n') + 1
		open = n == 0
		if open {
			n = len(rest)
		}
		used += n
		if copied {
			out = append(out, rest[:n]...)
		} else {
			out = in[:used]
		}
	}
	return out, used, open
}

// pingLine returns the length of the line PING at the start of b and its line ending, 0 if there is
// none.
func pingLine(b []byte) (n int, end string) {
	after, found := bytes.CutPrefix(b, []byte(ping))
	switch {
	case found && bytes.HasPrefix(after, []byte("\n")):
		return len(ping) + 1, "\n"
	case found && bytes.HasPrefix(after, []byte("\r\n")):
		return len(ping) + 2, "\r\n"
	default:
		return 0, ""
	}
}

// startsPing reports whether b is the beginning of a line PING.
func startsPing(b []byte) bool {
	return len(b) < len(ping)+2 && bytes.HasPrefix([]byte(ping+"\r\n"), b)
}
