package nettest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
)

// A living peer sends something in each beat. A request that takes long takes twice the timeout.
const (
	timeout = 1500 * time.Millisecond
	beat    = timeout / 3
	long    = 2 * timeout
	// forever is a time that a test does not wait for.
	forever = 10 * time.Minute
)

// A listener is an idlenet.Listener that notes why connections have ended.
type listener struct {
	*idlenet.Listener
	t     testing.TB
	mu    sync.Mutex
	ended map[string]*idlenet.ReapError // guarded by mu; by the address of the peer
}

func listen(t testing.TB, cfg idlenet.Config) *listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listenOn(t, inner, cfg)
}

func listenOn(t testing.TB, inner net.Listener, cfg idlenet.Config) *listener {
	t.Helper()
	l := &listener{t: t, ended: make(map[string]*idlenet.ReapError)}
	cfg.OnReap = func(c net.Conn, reason *idlenet.ReapError) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended[c.RemoteAddr().String()] = reason
	}
	cfg.Logger = slog.New(testLog{t})
	var err error
	l.Listener, err = idlenet.Listen(inner, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// address returns the address of the listener.
func (l *listener) address() string { return l.Addr().String() }

// reasons returns the connections that have ended, by the addresses of their peers.
func (l *listener) reasons() map[string]idlenet.Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]idlenet.Reason)
	for peer, reason := range l.ended {
		all[peer] = reason.Reason
	}
	return all
}

// requireNone requires that no connection has ended.
func (l *listener) requireNone() {
	l.t.Helper()
	require.Empty(l.t, l.reasons())
}

// awaitEnd waits for the end of the connection of a peer, and requires its reason.
func (l *listener) awaitEnd(peer net.Addr, want idlenet.Reason) {
	l.t.Helper()
	eventually(l.t, "the connection ends", func() bool { return l.reasons()[peer.String()] != 0 })
	require.Equal(l.t, want.Error(), l.reasons()[peer.String()].Error())
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 30*time.Second, 10*time.Millisecond, what)
}

// everyBeat calls a function once per beat for a time.
func everyBeat(d time.Duration, do func()) {
	for began := time.Now(); time.Since(began) < d; time.Sleep(beat) {
		do()
	}
}

// certificate makes a certificate for 127.0.0.1.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, keyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	leaf, leafErr := x509.ParseCertificate(der)
	if err := errors.Join(keyErr, err, leafErr); err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
})

// serverTLS returns the configuration of a server with the certificate.
func serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate()}}
}

// clientTLS returns the configuration of a client that trusts the certificate.
func clientTLS(protocols ...string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(certificate().Leaf)
	return &tls.Config{RootCAs: pool, NextProtos: protocols}
}

// certificateFile writes the certificate to a file.
func certificateFile(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "cert.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate().Leaf.Raw})
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}

// testLog writes the warnings of a Listener to the log of a test.
type testLog struct{ t testing.TB }

func (testLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l testLog) Handle(_ context.Context, r slog.Record) error {
	if l.t.Context().Err() == nil { // later the test may be over
		l.t.Log(r.Message)
	}
	return nil
}

func (l testLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l testLog) WithGroup(string) slog.Handler      { return l }
