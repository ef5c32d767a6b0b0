package recipe

import (
	"io"
	"testing"

	"github.com/gobwas/ws"
)

// ReadFrame reads a WebSocket frame of a server.
func ReadFrame(t testing.TB, r io.Reader) (ws.Header, []byte) {
	t.Helper()
	head, err := ws.ReadHeader(r)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := io.ReadAll(io.LimitReader(r, head.Length))
	if err != nil {
		t.Fatal(err)
	}
	return head, payload
}
