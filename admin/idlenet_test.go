package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAListenerOfPackageNetIsShown shows, changes and closes connections of an idlenet.Listener.
func TestAListenerOfPackageNetIsShown(t *testing.T) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute, KeepClosed: 8})
	require.NoError(t, err)
	defer ln.Close()
	client := sockets.Dial(t, "tcp", ln.Addr().String())
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()

	const token = "0123456789abcdef"
	h, err := New(Config{Reaper: ln, Token: token, Open: true})
	require.NoError(t, err)
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	w := ask(http.MethodGet, "/api/connections", "")
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var list struct{ Connections []connection }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
	require.Len(t, list.Connections, 1)
	require.Equal(t, client.LocalAddr().String(), list.Connections[0].Remote)

	w = ask(http.MethodPost, "/api/timeouts", `{"read-timeout":"30s"}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, 30*time.Second, ln.Config().ReadTimeout)
	w = ask(http.MethodPost, "/api/timeouts", `{"read-timeout":"-1s"}`)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "set a positive duration")

	w = ask(http.MethodPost, "/api/connections/"+string(list.Connections[0].ID)+"/kick", "")
	require.Less(t, w.Code, 300, w.Body)
	require.ErrorIs(t, ln.Reason(c), reap.Kicked)
	found, blocked := h.inspectRings(t.Context())
	require.False(t, blocked)
	require.NotEmpty(t, found)
}
