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
	reaper *idle.Reaper // is told of lines as messages; if nil, nobody is
}

// A line is the state of the line that comes in on a connection, in its Context. It has one byte, so that no allocation is
// needed to put it there.
type line uint8

const (
	echoed line = 1 << iota // its beginning was echoed, and what follows up to its end is
	begun                   // some of it has come
)

func (h *echo) OnTraffic(c gnet.Conn) gnet.Action {
	in, _ := c.Peek(-1)
	before, _ := c.Context().(line)
	out, used, open := answer(in, before&echoed != 0)
	now := line(0)
	if open {
		now |= echoed
	}
	if open || used < len(in) {
		now |= begun
	}
	c.SetContext(now)
	h.tell(c, before, now, bytes.IndexByte(in, '\n') >= 0)
	// Written before it is discarded: out may be a part of in.
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

// tell tells the Reaper where messages begin and end.
func (h *echo) tell(c gnet.Conn, before, now line, complete bool) {
	if h.reaper == nil {
		return
	}
	conn, _ := h.reaper.Conn(c)
	if complete {
		conn.Ready()
	}
	switch {
	case now&begun != 0 && (complete || before&begun == 0):
		conn.BeginMessage()
	case now&begun == 0 && before&begun != 0:
		conn.EndMessage()
	}
}

func (*echo) OnClose(c gnet.Conn, _ error) gnet.Action {
	if rest, err := c.Peek(-1); err == nil && len(rest) > 0 { // the beginning of a PING that never came
		_, _ = c.Write(rest)
	}
	return gnet.None
}

// answer returns what to send for what has come in, how many bytes of it are dealt with, and whether a line is open at
// their end. What could become a PING is left for the next time. The answer is a part of in where nothing is to change.
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

// pingLine returns the length of the line PING at the start of b and its line ending, 0 if there is none.
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

// startsPing reports whether more bytes could make b begin with the line PING.
func startsPing(b []byte) bool {
	return len(b) < len(ping)+2 && bytes.HasPrefix([]byte(ping+"\r\n"), b)
}
