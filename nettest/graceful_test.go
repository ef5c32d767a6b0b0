package nettest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

// requestsPerCrowd is the number of requests of a crowd. IDLEWHEEL_REQUESTS sets another one.
func requestsPerCrowd(t testing.TB) int64 {
	text := os.Getenv("IDLEWHEEL_REQUESTS")
	if text == "" {
		return 2000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// A crowd of clients sends requests until all are sent.
type crowd struct {
	clients      int
	least, pause time.Duration       // the shortest and the longest pause between two requests
	client       func() func() error // returns a client, which sends a request per call
	sent         atomic.Int64
}

// run sends all requests, and requires that all are answered.
func (c *crowd) run(t testing.TB) {
	t.Helper()
	all := requestsPerCrowd(t)
	failed := make(chan error, all)
	var done sync.WaitGroup
	for range c.clients {
		request := c.client()
		done.Go(func() {
			time.Sleep(rand.N(c.pause)) // the handshakes of all at once may take longer than a timeout
			for c.sent.Add(1) <= all {
				if err := request(); err != nil {
					failed <- err
				}
				time.Sleep(c.least + rand.N(c.pause-c.least))
			}
		})
	}
	done.Wait()
	if len(failed) > 0 {
		t.Fatalf("%d of %d requests failed, the first one: %v", len(failed), all, <-failed)
	}
}

// httpClients returns a function that makes a client, which connects to what address returns.
func httpClients(t testing.TB, protocol string, address func() string) func() func() error {
	return func() func() error {
		transport := &http.Transport{
			TLSClientConfig: clientTLS(protocol), ForceAttemptHTTP2: protocol == "h2",
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address())
			},
		}
		t.Cleanup(transport.CloseIdleConnections)
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		return func() error {
			if answer := get(client, "https://127.0.0.1"); answer != "ok" {
				return errors.New(answer)
			}
			return nil
		}
	}
}

// someTime answers after up to 20 ms.
func someTime() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerIn(rand.N(20*time.Millisecond)).ServeHTTP(w, r)
	})
}

// inEachProtocol runs a test beside no other, because the others need the processor. A client that
// is starved after its handshake has an idle connection.
func inEachProtocol(t *testing.T, test func(t testing.TB, protocol string)) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		fair.RunParallel(t, protocol, func(t testing.TB) { test(t, protocol) })
	}
}

// TestNoRequestIsLostByIdleEnds has clients that send their next request at the instant at which
// their connection becomes idle.
func TestNoRequestIsLostByIdleEnds(t *testing.T) {
	inEachProtocol(t, func(t testing.TB, protocol string) {
		l := listen(t, idlenet.Config{ReadTimeout: timeout})
		serveHTTP(l, &http.Server{Handler: someTime()})
		c := crowd{
			clients: 300, least: timeout - 20*time.Millisecond, pause: timeout + 80*time.Millisecond,
			client: httpClients(t, protocol, l.address),
		}
		c.run(t)
		t.Log(len(l.reasons()), "connections have ended")
	})
}

func TestNoRequestIsLostByMaxAge(t *testing.T) {
	for _, grace := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(fmt.Sprint("grace ", grace), func(t *testing.T) {
			inEachProtocol(t, func(t testing.TB, protocol string) {
				l := listen(t, idlenet.Config{MaxAge: time.Second, MaxAgeGrace: grace})
				serveHTTP(l, &http.Server{Handler: someTime()})
				c := crowd{clients: 20, pause: 20 * time.Millisecond, client: httpClients(t, protocol, l.address)}
				c.run(t)
				require.Greater(t, l.Stats().Opened, uint64(c.clients))
			})
		})
	}
}

// TestNoRequestIsLostByADrain has clients that go on with another server.
func TestNoRequestIsLostByADrain(t *testing.T) {
	inEachProtocol(t, func(t testing.TB, protocol string) {
		var servers [2]*listener
		for n := range servers {
			servers[n] = listen(t, idlenet.Config{ReadTimeout: forever})
			serveHTTP(servers[n], &http.Server{Handler: someTime()})
		}
		var drained atomic.Bool
		c := crowd{clients: 50, pause: 50 * time.Millisecond, client: httpClients(t, protocol, func() string {
			if drained.Load() {
				return servers[1].address()
			}
			return servers[0].address()
		})}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for end := time.Now().Add(2 * time.Minute); c.sent.Load() < requestsPerCrowd(t)/4 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			drained.Store(true) // a load balancer is told first
			time.Sleep(100 * time.Millisecond)
			_ = servers[0].Drain(time.Second, 2*time.Second)
		}()
		c.run(t)
		<-done
		eventually(t, "all connections end", func() bool { return servers[0].Connections() == 0 })
	})
}
