//go:build unix

package settings

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
}

// A fixture is a Watcher that runs.
type fixture struct {
	t       *testing.T
	source  *Source[idle.Config]
	watcher *Watcher[idle.Config]
	cfg     idle.Config // guarded by the channel
	reports chan error
	stop    func() // ends Run and waits for it
}

// watch returns a fixture. Its Run begins when the caller calls begin.
func watch(t *testing.T) (f *fixture, begin func()) {
	t.Helper()
	s := New(flag.NewFlagSet("test", flag.ContinueOnError), idle.Config{ReadTimeout: time.Minute})
	s.File = filepath.Join(t.TempDir(), "limits")
	f = &fixture{t: t, source: s, watcher: s.Watch(), reports: make(chan error)}
	t.Cleanup(f.watcher.Stop)
	return f, func() {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			update := func(edit func(*idle.Config)) error {
				cfg := f.cfg
				edit(&cfg)
				if _, err := idle.Middleware(&handler{}, cfg); err != nil {
					return err
				}
				f.cfg = cfg
				return nil
			}
			f.watcher.Run(ctx, update, func(err error) { f.reports <- err })
		}()
		f.stop = func() {
			cancel()
			await(t, ended)
		}
		t.Cleanup(f.stop)
	}
}

func (f *fixture) write(lines string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.source.File, []byte(lines+"\n"), 0o600))
}

// hangup sends SIGHUP to this process.
func (f *fixture) hangup() {
	f.t.Helper()
	require.NoError(f.t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
}

// await returns what a channel has, and fails a test that would wait for ever.
func await[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
	}
	return v
}

func (f *fixture) report() error {
	f.t.Helper()
	return await(f.t, f.reports)
}

func TestHangupReadsTheFileAgain(t *testing.T) {
	f, begin := watch(t)
	begin()
	for lines, want := range map[string]idle.Config{
		"read-timeout 30s\nmax-age 1h\n": {ReadTimeout: 30 * time.Second, MaxAge: time.Hour},
		"":                               {ReadTimeout: time.Minute}, // as the flags say
	} {
		f.write(lines)
		f.hangup()
		require.NoError(t, f.report())
		require.Equal(t, want, f.cfg)
	}
}

func TestAMistakeIsReportedAndChangesNothing(t *testing.T) {
	f, begin := watch(t)
	begin()
	f.write("max-age 1h\n")
	f.hangup()
	require.NoError(t, f.report())
	before := f.cfg
	for lines, want := range map[string]string{
		"max-age 2h\nread-timeout soon\n":     "line 2",
		"max-age 2h\nread-timeout -1s\n":      "line 2: read-timeout is -1s: set a positive duration",
		"read-timeout 1s\nmax-age-grace 2h\n": "Config.MaxAgeGrace is 2h0m0s without Config.MaxAge",
	} {
		f.write(lines)
		f.hangup()
		require.ErrorContains(t, f.report(), want)
		require.Equal(t, before, f.cfg)
	}
	require.NoError(t, os.Remove(f.source.File))
	f.hangup()
	require.ErrorIs(t, f.report(), os.ErrNotExist)
	require.NoError(t, syscall.Mkfifo(f.source.File, 0o600)) // to open it would wait for a writer
	f.hangup()
	require.ErrorContains(t, f.report(), "is not a regular file")
	require.Equal(t, before, f.cfg)
}

func TestHangupWithoutAFileIsReported(t *testing.T) {
	f, begin := watch(t)
	f.source.File = ""
	begin()
	f.hangup()
	require.ErrorIs(t, f.report(), ErrNoFile)
	f.watcher.Stop() // the end of the test calls it again
}

// TestHangupBeforeRunIsHandled sends SIGHUP between Watch and Run. It neither ends the process nor
// is lost.
func TestHangupBeforeRunIsHandled(t *testing.T) {
	f, begin := watch(t)
	f.write("max-age 1h\n")
	f.hangup()
	require.Eventually(t, func() bool { return len(f.watcher.signals) == 1 }, 20*time.Second, time.Millisecond)
	begin()
	require.NoError(t, f.report())
	require.Equal(t, time.Hour, f.cfg.MaxAge)
}

// TestHangupChangesAListener reloads the limits of a server on package net. A silent connection
// ends by the new timeout. A file with a mistake changes nothing.
func TestHangupChangesAListener(t *testing.T) {
	s := New(flag.NewFlagSet("test", flag.ContinueOnError), idlenet.Config{ReadTimeout: time.Hour, Tick: 20 * time.Millisecond})
	s.File = filepath.Join(t.TempDir(), "limits")
	write := func(lines string) { require.NoError(t, os.WriteFile(s.File, []byte(lines+"\n"), 0o600)) }
	write("max-connections 10")
	var cfg idlenet.Config
	require.NoError(t, s.Load(&cfg))
	cfg.Stamp = runtime.GOOS != "linux"
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := idlenet.Listen(inner, cfg)
	require.NoError(t, err)
	defer ln.Close()
	sockets.Dial(t, "tcp", ln.Addr().String())
	served, err := ln.Accept()
	require.NoError(t, err)
	defer served.Close()

	w := s.Watch()
	defer w.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	reports := make(chan error)
	running.Go(func() { w.Run(ctx, ln.Update, func(err error) { reports <- err }) })
	reload := func(lines string) error {
		write(lines)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		return await(t, reports)
	}
	before := s.Describe(ln.Config())
	require.ErrorContains(t, reload("read-timeout 1s\noutput-limit 5\n"), `limits, line 2: output-limit cannot be set in this file`, "idlenet has no such limit")
	require.Contains(t, Explain(reload("max-age-grace 1s"), "--"), "--max-age-grace is 1s without --max-age: set both")
	require.Equal(t, before, s.Describe(ln.Config()))

	require.NoError(t, reload("read-timeout 300ms\nclose-grace 100ms\n"))
	require.Equal(t, "read-timeout 300ms, tick 20ms, close-grace 100ms", s.Describe(ln.Config()))
	require.NoError(t, served.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = served.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.ErrorIs(t, ln.Reason(served), reap.ReadIdle)
}

// TestRunReturnsWhileAReadHangs stands for a file on a network file system that does not answer.
func TestRunReturnsWhileAReadHangs(t *testing.T) {
	f, begin := watch(t)
	reading, answer, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.watcher.read = func() (idle.Config, error) {
		defer close(done)
		close(reading)
		<-answer
		return idle.Config{ReadTimeout: time.Second}, nil
	}
	begin()
	f.hangup()
	await(t, reading)
	f.stop()
	close(answer)
	await(t, done)
	require.Zero(t, f.cfg, "the values of a read that ends later are dropped")
}

func TestAReadThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s := New(flag.NewFlagSet("test", flag.ContinueOnError), idle.Config{})
		s.File = "limits"
		w := &Watcher[idle.Config]{source: s, read: func() (idle.Config, error) {
			<-answer
			return idle.Config{}, nil
		}}
		began := time.Now()
		_, err := w.readUntil(t.Context())
		require.EqualError(t, err, "settings: reading limits takes longer than 5s")
		require.Equal(t, readTimeout, time.Since(began))
		close(answer)
	})
}

func TestTheTokenMayComeFromAFIFO(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	go func() { _ = os.WriteFile(file, []byte("0123456789abcdef\n"), 0) }()
	token, err := ReadToken(file)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", token)
	_, err = ReadToken("/dev/zero")
	require.ErrorContains(t, err, "/dev/zero: it has more than 4096 bytes")
}

type handler struct{ gnet.BuiltinEventEngine }
