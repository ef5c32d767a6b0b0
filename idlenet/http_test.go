package idlenet

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// A site is an HTTP server that is attached to a Listener.
type site struct {
	*Listener
	*httptest.Server
}

func newSite(t *testing.T, cfg Config, handler http.HandlerFunc) *site {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := Listen(inner, cfg)
	require.NoError(t, err)
	s := &site{ln, httptest.NewUnstartedServer(handler)}
	require.NoError(t, s.Server.Listener.Close())
	s.Server.Listener = ln
	s.Server.EnableHTTP2 = true
	s.Server.Config.Protocols = new(http.Protocols)
	s.Server.Config.Protocols.SetHTTP1(true)
	s.Server.Config.Protocols.SetHTTP2(true)
	s.Server.Config.Protocols.SetUnencryptedHTTP2(true)
	ln.AttachHTTP(s.Server.Config)
	t.Cleanup(func() {
		s.Server.Close()
		require.NoError(t, ln.Drain(0, 0))
		requireNothingKept(t, ln.Reaper)
	})
	return s
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// A visitor is a connection that sends requests with HTTP/1.
type visitor struct {
	net.Conn
	t       *testing.T
	answers *bufio.Reader
}

func (s *site) visit(t *testing.T) *visitor {
	t.Helper()
	c := sockets.Dial(t, "tcp", s.Server.Listener.Addr().String())
	return &visitor{c, t, bufio.NewReader(c)}
}

// get sends a request, with more lines of its header.
func (v *visitor) get(lines string) {
	v.t.Helper()
	_, err := io.WriteString(v, "GET / HTTP/1.1\r\nHost: x\r\n"+lines+"\r\n")
	require.NoError(v.t, err)
}

// answered requires an answer. It reports whether the server closes the connection after it.
func (v *visitor) answered() (last bool) {
	v.t.Helper()
	answer, err := http.ReadResponse(v.answers, nil)
	require.NoError(v.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(v.t, err)
	require.Equal(v.t, "ok", string(body))
	return answer.Close
}

func (v *visitor) requireEnd() {
	v.t.Helper()
	_, err := v.answers.ReadByte()
	require.ErrorIs(v.t, err, io.EOF)
}

func TestAttachHTTPCallsWhatWasThere(t *testing.T) {
	type key struct{}
	states := make(chan http.ConnState, 10)
	ln := newEcho(t, Config{ReadTimeout: time.Hour})
	server := &http.Server{
		ConnState:   func(_ net.Conn, state http.ConnState) { states <- state },
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, key{}, "value") },
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.Equal(t, "value", r.Context().Value(key{}))
			require.NotNil(t, ConnOf(r.Context()))
			panic(http.ErrAbortHandler)
		}),
	}
	ln.AttachHTTP(server)
	client, peer := net.Pipe()
	defer client.Close()
	server.ConnState(peer, http.StateNew)
	require.Equal(t, http.StateNew, <-states)
	ctx := server.ConnContext(t.Context(), peer)
	require.Equal(t, peer, ConnOf(ctx))
	require.Nil(t, ConnOf(t.Context()))
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { server.Handler.ServeHTTP(httptest.NewRecorder(), request) })

	was := http.DefaultServeMux
	defer func() { http.DefaultServeMux = was }()
	http.DefaultServeMux = http.NewServeMux()
	var plain http.Server
	ln.AttachHTTP(&plain)
	plain.ConnState(peer, http.StateNew)
	http.HandleFunc("/", ok)
	w := httptest.NewRecorder()
	plain.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusOK, w.Code, "the handler is http.DefaultServeMux")
}

func TestTheNextAnswerClosesALeavingConnection(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(s *site){
		"maximum age": func(s *site) {
			require.NoError(t, s.Update(func(cfg *Config) { cfg.MaxAge, cfg.MaxAgeGrace = time.Second, time.Hour }))
			eventually(t, "all are leaving", func() bool {
				found, err := s.Inspect(t.Context(), Query{States: true})
				return err == nil && found.States["leaving"] == 3
			})
		},
		"drain": func(s *site) { require.NoError(t, s.Drain(0, time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, Config{ReadTimeout: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
				clear(w.Header()) // as httputil.ReverseProxy does after a 103
				ok(w, r)
			})
			s.Start()
			v, offers, socket := s.visit(t), s.visit(t), s.visit(t)
			for _, v := range []*visitor{v, offers, socket} {
				v.get("")
				require.False(t, v.answered())
			}
			leave(s)
			socket.get("Upgrade: websocket\r\nConnection: Upgrade\r\n")
			require.False(t, socket.answered(), "a WebSocket begins")
			v.get("")
			require.True(t, v.answered())
			v.requireEnd()
			offers.get("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n")
			require.True(t, offers.answered(), "package net/http does not change to h2c")
		})
	}
}

// TestADrainAsksEachConnectionInItsTurn has a connection with a late turn, and an exempt one.
func TestADrainAsksEachConnectionInItsTurn(t *testing.T) {
	for spread, exempt := range map[time.Duration]bool{10000 * time.Hour: false, 0: true} {
		var s *site
		s = newSite(t, Config{ReadTimeout: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
			s.conn(ConnOf(r.Context())).Exempt(exempt)
			ok(w, r)
		})
		s.Start()
		v := s.visit(t)
		v.get("")
		require.False(t, v.answered())
		require.NoError(t, s.Drain(spread, max(spread, time.Hour)))
		v.get("")
		require.False(t, v.answered())
	}
}

// TestARequestInHandGoesOn ends a connection during a request.
func TestARequestInHandGoesOn(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan net.Conn), make(chan struct{}, 1)
	s := newSite(t, Config{ReadTimeout: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
		begun <- ConnOf(r.Context())
		select {
		case <-finish:
			ok(w, r)
		case <-r.Context().Done():
		}
	})
	s.Start()
	v := s.visit(t)
	v.get("")
	c := receive(t, begun)
	require.NoError(t, s.Kick(t.Context(), s.conn(c).ID()))
	eventually(t, "it has ended", func() bool { return s.Reason(c) != nil })
	time.Sleep(quiet + 200*time.Millisecond)
	finish <- struct{}{}
	require.False(t, v.answered())
	v.get("") // in less than the quiet time
	receive(t, begun)
	finish <- struct{}{}
	require.True(t, v.answered())
	v.requireEnd()

	v = s.visit(t) // it sends no other request
	v.get("")
	c = receive(t, begun)
	require.NoError(t, s.Kick(t.Context(), s.conn(c).ID()))
	eventually(t, "it has ended", func() bool { return s.Reason(c) != nil })
	finish <- struct{}{}
	require.False(t, v.answered())
	v.requireEnd()
}

// TestARequestBetweenTheVerdictAndTheEndIsAnswered sends a request after the kernel was asked, and
// the server reads it before it is told to close the connection.
func TestARequestBetweenTheVerdictAndTheEndIsAnswered(t *testing.T) {
	t.Parallel()
	for reason, cfg := range map[Reason]Config{
		reap.ReadIdle: {ReadTimeout: time.Minute, Tick: 20 * time.Millisecond},
		reap.Shed:     {MaxConnections: 1, ShedProtect: 50 * time.Millisecond},
	} {
		begun, next := make(chan net.Conn, 1), make(chan func(), 1)
		cfg.OnReap = func(net.Conn, *ReapError) {
			(<-next)()
			<-begun
		}
		s := newSite(t, cfg, func(w http.ResponseWriter, r *http.Request) {
			begun <- ConnOf(r.Context())
			select {
			case <-r.Context().Done(): // the answer is empty
			case <-time.After(200 * time.Millisecond):
				ok(w, r)
			}
		})
		s.Start()
		v := s.visit(t)
		v.get("")
		c := receive(t, begun)
		require.False(t, v.answered())
		next <- func() { v.get("") }
		if reason == reap.ReadIdle {
			require.NoError(t, s.Update(func(cfg *Config) { cfg.ReadTimeout = 300 * time.Millisecond }))
		} else {
			eventually(t, "it may be shed", func() bool {
				found, err := s.Inspect(t.Context(), Query{Limit: 1})
				return err == nil && min(found.Connections[0].ReadIdle, found.Connections[0].WriteIdle) > 2*cfg.ShedProtect
			})
			s.visit(t)
		}
		require.True(t, v.answered())
		v.requireEnd()
		require.ErrorIs(t, s.Reason(c), reason)
	}
}

// TestARequestAtTheEndOfTheQuietSecondIsAnswered sends it when the server is about to be told.
func TestARequestAtTheEndOfTheQuietSecondIsAnswered(t *testing.T) {
	for _, pause := range []time.Duration{0, quiet / 4} { // between the parts of the request
		t.Run(pause.String(), func(t *testing.T) {
			t.Parallel()
			requestAtTheEnd(t, pause)
		})
	}
}

func requestAtTheEnd(t *testing.T, pause time.Duration) {
	begun, goOn := make(chan net.Conn, 1), make(chan bool, 1)
	s := newSite(t, Config{ReadTimeout: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
		begun <- ConnOf(r.Context())
		select {
		case <-r.Context().Done(): // the answer is empty
		case <-goOn:
			ok(w, r)
		}
	})
	s.Start()
	v := s.visit(t)
	v.get("")
	c := s.conn(receive(t, begun))
	goOn <- true
	require.False(t, v.answered())
	require.NoError(t, s.Kick(t.Context(), c.ID()))
	telling := new(sync.Mutex)
	eventually(t, "it stays for its protocol", func() (leaves bool) {
		c.with(func(s *shard, id uint32, n *conn) {
			leaves, telling = n.Own&leaving != 0 && s.Ends.Of(id).Told != 0, &s.telling
		})
		return leaves
	})
	telling.Lock()
	time.Sleep(quiet + quiet/4)
	_, err := io.WriteString(v, "GET / HTTP/1.1\r\nHost: x\r\n")
	require.NoError(t, err)
	if time.Sleep(pause); pause > 0 {
		telling.Unlock()
		time.Sleep(pause)
	}
	_, err = io.WriteString(v, "\r\n")
	require.NoError(t, err)
	if receive(t, begun); pause == 0 {
		time.Sleep(quiet + quiet/4) // the server has read all of it
		telling.Unlock()
	}
	time.Sleep(quiet / 4)
	goOn <- true
	require.True(t, v.answered())
	v.requireEnd()
}

// TestARequestThatWasReadBeforeTheEndIsAnswered has a server that tells of a request a moment after
// it was told to close the connection.
func TestARequestThatWasReadBeforeTheEndIsAnswered(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]reap.Reason{"idle": reap.ReadIdle, "kicked": reap.Kicked, "attached and kicked": reap.Kicked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, dial := serveDeaf(t, Config{ReadTimeout: 300 * time.Millisecond})
			client, c := dial()
			ln.connState(c, http.StateNew, name == "attached and kicked")
			if reason == reap.Kicked {
				require.NoError(t, ln.Kick(t.Context(), ln.conn(c).ID()))
			}
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.ErrorIs(t, ln.Reason(c), reason)

			ln.ConnState(c, http.StateActive)
			_, err = client.Write([]byte("x"))
			require.NoError(t, err)
			if _, err = c.Read(make([]byte, 1)); name == "kicked" {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a request does not undo it")
				return
			}
			require.NoError(t, err)
			ln.ConnState(c, http.StateIdle)
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it ends all the same")
		})
	}
}

func TestCloseGraceBoundsTheRequestInHand(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	s := newSite(t, Config{MaxAge: 500 * time.Millisecond, CloseGrace: 500 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(ended)
	})
	s.Start()
	opened := time.Now()
	v := s.visit(t)
	v.get("")
	receive(t, ended)
	require.GreaterOrEqual(t, time.Since(opened), (450+500)*time.Millisecond, "MaxAge less a tenth, and CloseGrace")
	_, err := v.Read(make([]byte, 1))
	require.Error(t, err)
}

// receive returns what comes from a channel, and fails if nothing comes.
func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "nothing happens")
	}
	return got
}

// TestAHijackedConnectionIsTold has handlers that begin a WebSocket before and after the end of the
// connection. The deadline tells them, however much is sent.
func TestAHijackedConnectionIsTold(t *testing.T) {
	for name, hijackFirst := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, told := make(chan net.Conn, 1), make(chan error, 1)
			ended, end := context.WithCancel(t.Context())
			s := newSite(t, Config{ReadTimeout: time.Hour, CloseGrace: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
				if !hijackFirst {
					begun <- ConnOf(r.Context())
					<-ended.Done()
				}
				c, _, err := http.NewResponseController(w).Hijack()
				require.NoError(t, err)
				defer c.Close()
				if hijackFirst {
					begun <- c
				}
				_, err = io.Copy(io.Discard, c)
				told <- err
			})
			s.Start()
			v := s.visit(t)
			v.get("")
			c := receive(t, begun)
			testpeer.KeepSending(t, []net.Conn{v.Conn})
			require.NoError(t, s.Kick(t.Context(), s.conn(c).ID()))
			eventually(t, "it has ended", func() bool {
				told := hijackFirst // and perhaps closed by now
				s.with(c, func(s *shard, id uint32, _ *conn) { told = s.Ends.Of(id) != nil && s.Ends.Of(id).Told != 0 })
				return told
			})
			end()
			require.ErrorContains(t, receive(t, told), "i/o timeout")
		})
	}
}

// TestAHijackInOnReap begins a WebSocket before the server is told of the end.
func TestAHijackInOnReap(t *testing.T) {
	var w *simWorld
	w = newQuietWorld(t, Config{ReadTimeout: time.Hour, OnReap: func(c net.Conn, reason *ReapError) {
		w.onReap(c, reason)
		w.http.ConnState(c, http.StateHijacked)
		require.Zero(t, w.N["told to close"])
	}})
	l := w.accept()
	w.http.ConnState(l.c, http.StateNew)
	w.Sleep(2 * quiet)
	w.ln.shard(l.conn).tellQuiet(0, l.conn, nil) // it does not leave
	l.KickedAt = w.Now
	require.NoError(t, w.ln.Kick(t.Context(), w.ln.conn(l.c).ID()))
	w.Sleep(w.Slack())
	require.Equal(t, 1, w.N["told to close"])
}

// TestAClosedConnectionIsNotedAfterItsEnd: its place is free for the next one of its source.
func TestAClosedConnectionIsNotedAfterItsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{
		ReadTimeout: time.Hour, CloseGrace: time.Hour, Sources: sourcelimit.Limits{Connections: 1}, MaxConnections: 1,
	}, ok)
	s.Start()
	v := s.visit(t)
	v.get("")
	require.False(t, v.answered())
	found, err := s.Inspect(t.Context(), Query{Limit: 1})
	require.NoError(t, err)
	require.NoError(t, s.Kick(t.Context(), found.Connections[0].ID))
	eventually(t, "it has ended", func() bool { return s.Stats().Reaped[reap.Kicked] == 1 })
	require.Zero(t, s.watch.Decided.Load(), "it takes the place of another one until its protocol allows its end")
	v.requireEnd()
	eventually(t, "it is closed", func() bool { return s.Connections() == 0 })
	require.Zero(t, s.watch.Decided.Load())
	v = s.visit(t)
	v.get("")
	require.False(t, v.answered())
}

// TestEarlyHintsOfALeavingConnection: HTTP/2 forbids the header Connection, in a 103 as well.
func TestEarlyHintsOfALeavingConnection(t *testing.T) {
	for status, write := range map[int]func(lastWriter){
		http.StatusCreated: func(w lastWriter) { w.WriteHeader(http.StatusCreated) }, http.StatusOK: lastWriter.Flush,
	} {
		w := httptest.NewRecorder()
		write(lastWriter{w})
		require.Equal(t, "close", w.Result().Header.Get("Connection"))
		require.Equal(t, status, w.Code)
		require.Equal(t, status == http.StatusOK, w.Flushed)
		require.Equal(t, w, lastWriter{w}.Unwrap())
		_, _, err := lastWriter1{lastWriter{w}}.Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
	}
	for name, handler := range map[string]http.HandlerFunc{
		"Write": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusEarlyHints); ok(w, r) },
		"WriteHeader": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
			ok(w, r)
		},
		"Flush": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.(http.Flusher).Flush()
			ok(w, r)
		},
		"ReadFrom": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader("ok"), 2))
		},
		"interfaces": func(w http.ResponseWriter, r *http.Request) {
			if r != nil {
				_ = w.(http.Pusher).Push("/", nil)
				_, hijacks := w.(http.Hijacker)
				assert.False(t, hijacks, "it is HTTP/2")
				w.(closeNotifier).CloseNotify()
			}
			ok(w, r)
		},
		"WriteString": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.(io.StringWriter).WriteString("ok") },
		"nothing":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) },
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			handler(lastWriter{w}.like(w), nil)
			require.Equal(t, name != "nothing", w.Header().Get("Connection") == "close")
			require.Equal(t, name != "nothing", w.Body.String() == "ok")
			s := newSite(t, Config{ReadTimeout: time.Hour}, handler)
			s.StartTLS()
			client := s.Client()
			for n := range 3 {
				hints := http.Header{}
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					Got1xxResponse: func(_ int, header textproto.MIMEHeader) error { hints = http.Header(header); return nil },
				})
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
				require.NoError(t, err)
				answer, err := client.Do(request)
				if n == 2 {
					require.Error(t, err, "it was a GOAWAY, and a new connection is refused")
					return
				}
				require.NoError(t, err)
				require.Equal(t, 2, answer.ProtoMajor)
				require.Empty(t, hints)
				require.NoError(t, answer.Body.Close())
				if n == 0 {
					require.NoError(t, s.Drain(0, time.Hour))
				}
			}
		})
	}
}

// A frame is the head of a frame of HTTP/2.
type frame struct {
	kind   byte
	stream uint32
}

// The kinds of frames.
const (
	dataFrame    = 0
	headersFrame = 1
	goAwayFrame  = 7
)

// readFrame returns the next frame, and its payload.
func readFrame(r io.Reader) (f frame, payload []byte, err error) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(r, head); err != nil {
		return frame{}, nil, err
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(r, payload)
	return frame{head[3], binary.BigEndian.Uint32(head[5:])}, payload, err
}

// A client of HTTP/2 sends its preface, with settings and a WINDOW_UPDATE that allow long answers,
// and then a GET on stream 1 or 3. A PING is what it may send as it reads.
const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x7f\xff\xff" + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x7f\xff\xff"
	pingFrame = "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
)

func getOn(stream byte) string {
	return "\x00\x00\x06\x01\x05\x00\x00\x00" + string(stream) + "\x82\x86\x84\x41\x01x"
}

// TestAnHTTP2ConnectionIsWarned has clients with and without TLS, and with and without a request.
// They are slow to read the last answer, which is long.
func TestAnHTTP2ConnectionIsWarned(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		secure bool
		sent   string
	}{
		"TLS, no request": {true, preface}, "TLS, a request": {true, preface + getOn(1)}, "a request": {false, preface + getOn(1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const long = 1 << 20
			var s *site
			s = newSite(t, Config{ReadTimeout: time.Minute, Tick: 20 * time.Millisecond, CloseGrace: time.Minute}, func(w http.ResponseWriter, r *http.Request) {
				if ok(w, r); s.Reason(ConnOf(r.Context())) != nil {
					_, _ = w.Write(make([]byte, long))
				}
			})
			var c net.Conn
			if tc.secure {
				s.StartTLS()
				secure, err := tls.Dial("tcp", s.Server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				require.NoError(t, err)
				t.Cleanup(func() { _ = secure.Close() })
				c = secure
			} else {
				s.Start()
				c = s.visit(t).Conn
			}
			require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
			_, err := io.WriteString(c, tc.sent)
			require.NoError(t, err)
			require.NoError(t, s.Update(func(cfg *Config) { cfg.ReadTimeout = 300 * time.Millisecond }))
			var warnedAt time.Time
			answered := 0
			for {
				f, payload, err := readFrame(c)
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
					break
				}
				if f == (frame{dataFrame, 3}) {
					answered += len(payload)
				}
				// The one of the server for the last answer comes before or after that.
				if f.kind != goAwayFrame || !warnedAt.IsZero() && string(payload[:4]) == "\x00\x00\x00\x03" {
					continue
				}
				require.Equal(t, "\x7f\xff\xff\xff\x00\x00\x00\x00", string(payload))
				require.Zero(t, f.stream)
				require.Zero(t, warnedAt, "one GOAWAY")
				warnedAt = time.Now()
				_, err = io.WriteString(c, getOn(3)) // it was on its way when the GOAWAY came
				require.NoError(t, err)
				time.Sleep(quiet * 3 / 2)
				_, err = io.WriteString(c, pingFrame)
				require.NoError(t, err)
				for f.kind != headersFrame {
					f, _, err = readFrame(c)
					require.NoError(t, err)
				}
				require.EqualValues(t, 3, f.stream)
			}
			require.NotZero(t, warnedAt)
			require.GreaterOrEqual(t, time.Since(warnedAt), quiet)
			require.Equal(t, len("ok")+long, answered)
			require.EqualValues(t, 1, s.Stats().Reaped[reap.ReadIdle])
		})
	}
}

// A slowWriter is a connection that needs a moment for each Write.
type slowWriter struct {
	net.Conn
	wrote bool
}

func (c *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	c.wrote = true
	return len(b), nil
}

// TestALastAnswerIsNotAwaitedForEver has clients that do not read the last answer. One resets the
// connection, and the one of MaxAge becomes exempt in its last request.
func TestALastAnswerIsNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"resets": {ReadTimeout: time.Hour, CloseGrace: time.Minute},
		"exempt": {CloseGrace: time.Second, MaxAge: time.Second, MaxAgeGrace: time.Hour, Goodbye: func(net.Conn, *ReapError) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s *site
			var requests atomic.Int32
			s = newSite(t, cfg, func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) == 2 {
					s.conn(ConnOf(r.Context())).Exempt(name == "exempt")
					_, _ = w.Write(make([]byte, 3<<20))
				}
			})
			s.Start()
			c := s.visit(t).Conn.(*net.TCPConn)
			require.NoError(t, c.SetReadBuffer(8<<10))
			_, err := io.WriteString(c, preface+getOn(1))
			require.NoError(t, err)
			for f := (frame{}); f.kind != headersFrame; {
				f, _, err = readFrame(c)
				require.NoError(t, err)
			}
			for range 7 { // it is not idle, and becomes older than MaxAge
				time.Sleep(quiet / 5)
				_, err = io.WriteString(c, pingFrame)
				require.NoError(t, err)
			}
			if name == "resets" {
				found, err := s.Inspect(t.Context(), Query{Limit: 1})
				require.NoError(t, err)
				require.NoError(t, s.Kick(t.Context(), found.Connections[0].ID))
			}
			_, err = io.WriteString(c, getOn(3))
			require.NoError(t, err)
			eventually(t, "the last answer has begun", func() bool { return requests.Load() == 2 })
			time.Sleep(quiet / 2)
			if name == "resets" {
				require.NoError(t, c.SetLinger(0))
				require.NoError(t, c.Close())
			}
			eventually(t, "the connection is closed", func() bool { return s.Connections() == 0 })
		})
	}
}

// TestARequestWaitsForTheGoAway: the server writes the frames of an answer in several Writes, and
// the GOAWAY must not come between them.
func TestARequestWaitsForTheGoAway(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Hour})
	l := w.accept()
	w.ln.connState(tls.Server(l.c, new(tls.Config)), http.StateActive, true)
	c := &http2Conn{Conn: &slowWriter{}, warned: make(chan struct{})}
	w.ln.with(l.c, func(s *shard, id uint32, _ *conn) {
		require.Empty(t, s.http2, "TLS is not HTTP/2")
		s.http2[id] = c
	})
	go c.sendGoAway()
	w.ln.connState(l.c, http.StateActive, true)
	require.True(t, c.Conn.(*slowWriter).wrote)
	w.Sleep(2 * quiet)
	w.ln.with(l.c, func(s *shard, id uint32, n *conn) {
		for _, reason := range []string{"a request is in hand", "the GOAWAY is not written", "net/http closes it", ""} {
			s.leave(id, n, w.Elapsed())
			require.Equal(t, reason == "", len(s.calls) > 0, reason)
			n.Own &^= requested
			c.warned, c.closes = make(chan struct{}), reason == "the GOAWAY is not written"
			if reason != "a request is in hand" {
				close(c.warned)
			}
		}
		s.calls = nil
	})
	l.Sock.Peer.Send(1)
	l.reading = false
	for _, age := range []time.Duration{100 * time.Millisecond, 2 * quiet} { // of a byte that waits
		w.Sleep(age)
		w.ln.with(l.c, func(s *shard, id uint32, n *conn) {
			s.leave(id, n, w.Elapsed())
			require.Empty(t, s.calls, age)
		})
	}
}

// TestAConnectionLeavesOnce has a request that begins before the server is told of the end.
func TestAConnectionLeavesOnce(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Hour})
	l := w.accept()
	var told func()
	w.ln.with(l.c, func(s *shard, id uint32, n *conn) {
		s.http2[id] = &http2Conn{}
		s.End(id, n, w.ln.watch.NewError(reap.ReadIdle))
		n.Own, s.calls = n.Own|requested, nil
		told = func() { s.told(id, n.Front.own(), s.Ends.Of(id), false) }
	})
	told()
	require.Zero(t, w.ln.watch.Decided.Load(), "it takes the place of another one until it is closed")
}
