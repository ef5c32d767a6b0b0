package main

import (
	"bytes"
	"errors"
	"io"

	"github.com/gobwas/ws"
	"github.com/panjf2000/gnet/v2"
)

const maxMessage = 1 << 20 // bytes

// A session is the state of a connection after the WebSocket handshake. Between the fragments of a
// message it has those so far.
type session struct {
	state     ws.State // ws.StateFragmented
	kind      ws.OpCode
	fragments []byte
}

// frame answers the first frame in b, and returns its length.
func (s *session) frame(c gnet.Conn, b []byte) (n int, err error) {
	head := bytes.NewReader(b)
	h, err := ws.ReadHeader(head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, nil
	}
	if err == nil {
		err = ws.CheckHeader(h, ws.StateServerSide|s.state)
	}
	if err == nil && h.Length > maxMessage-int64(len(s.fragments)) {
		err = errors.New("the message is too long")
	}
	if err != nil {
		_, _ = c.Write(closeFrame(ws.StatusProtocolError, err.Error()))
		return 0, err
	}
	start := len(b) - head.Len()
	n = start + int(h.Length)
	if len(b) < n {
		return 0, nil
	}
	payload := bytes.Clone(b[start:n])
	ws.Cipher(payload, h.Mask, 0)
	switch {
	case h.OpCode == ws.OpPing:
		return n, ws.WriteFrame(c, ws.NewPongFrame(payload))
	case h.OpCode == ws.OpPong: // any byte is a sign of life
		return n, nil
	case h.OpCode == ws.OpClose:
		_ = ws.WriteFrame(c, ws.NewCloseFrame(payload))
		return 0, io.EOF
	}
	if h.OpCode != ws.OpContinuation {
		s.kind = h.OpCode
	}
	if s.fragments = append(s.fragments, payload...); !h.Fin {
		s.state = ws.StateFragmented
		return n, nil
	}
	err = ws.WriteFrame(c, ws.NewFrame(s.kind, true, s.fragments))
	*s = session{}
	return n, err
}

func closeFrame(code ws.StatusCode, reason string) []byte {
	return ws.MustCompileFrame(ws.NewCloseFrame(ws.NewCloseFrameBody(code, reason[:min(len(reason), 123)])))
}
