package server

import (
	"bytes"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/settings"
)

// parse returns a Config with some flags over its defaults.
func parse(t testing.TB, cfg Config, args ...string) (Config, error) {
	t.Helper()
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	set.SetOutput(new(bytes.Buffer))
	cfg.AddFlags(set)
	return cfg, set.Parse(args)
}

func TestEachSettingIsAFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(testToken+"\n"), 0o600))
	var args []string
	for _, s := range configtable.Server {
		unit, _ := flag.UnquoteUsage(&flag.Flag{Usage: s.Help, Value: s.Value(new(Config))})
		text := map[string]string{"duration": "1s", "number": "1", "bytes": "65536", "address": "127.0.0.1:1", "file": file, "": "true"}[unit]
		args = append(args, "-"+s.Name+"="+text)
	}
	cfg, err := parse(t, Config{Addresses: []string{"127.0.0.1:7000"}}, append(args, "-addr", "127.0.0.1:2")...)
	require.NoError(t, err)
	require.Equal(t, Config{
		Addresses: []string{"127.0.0.1:1", "127.0.0.1:2"}, NumEventLoop: 1, PressureTimeout: time.Second,
		Sources: SourceLimits{Connections: 1, Rate: 1}, AcceptRate: 1, SocketBuffer: 65536, ReusePort: true,
		Drain: Drain{time.Second, time.Second, time.Second, true}, Admin: Admin{Addr: "127.0.0.1:1", Token: testToken, Profiles: true},
	}, cfg)

	var log bytes.Buffer
	logTo(&log).Info("serving", "config", cfg)
	shown := configtable.Server.JSON(&cfg)
	require.Len(t, shown, len(configtable.Server)-1, "all but the token")
	require.NotContains(t, log.String(), testToken)
	for name, value := range shown {
		require.Contains(t, log.String(), "config."+name+"=", name)
		require.NotEqual(t, testToken, value, name)
	}
	require.Equal(t, "127.0.0.1:1, 127.0.0.1:2", shown["addr"])
	require.Equal(t, "1s", shown["drain-delay"])
}

func TestFlagsThatAreNotSetLeaveTheConfig(t *testing.T) {
	want := Config{Addresses: []string{"127.0.0.1:7000"}, AcceptRate: 5, Admin: Admin{Token: testToken}}
	cfg, err := parse(t, want, "-share-port")
	require.NoError(t, err)
	want.ReusePort = true
	require.Equal(t, want, cfg)
	_, err = parse(t, want, "-admin-token-file", "/nope")
	require.ErrorContains(t, err, "/nope")
}

// TestErrorsOfSettingsNameFlags explains errors of New and Run.
func TestErrorsOfSettingsNameFlags(t *testing.T) {
	_, refused := New(withDefaults(Config{
		AcceptRate: -1, Sources: SourceLimits{Rate: -1}, Drain: Drain{Spread: 2, Timeout: 1}, Addresses: []string{":1", ":1"},
	}))
	require.ErrorIs(t, refused, ErrBadAddress)
	_, starved := budget{allowed: 70}.connections()
	taken := listenTCP(t)
	inUse := run(t.Context(), Config{Admin: Admin{Addr: taken.Addr().String()}})
	for err, want := range map[error][]string{
		refused: {
			`bad address: -addr has ":1" twice`,
			"-source-rate is -1: set a positive number, or 0 for any number; -accept-rate is -1",
			"-drain-timeout is 1ns, less than -drain-spread of 2ns",
		},
		starved: {"too few file descriptors: 70 descriptors allowed"},
		inUse:   {"cannot listen for -admin: listen tcp4 " + taken.Addr().String()},
	} {
		text := settings.Explain(err, "-")
		for _, part := range want {
			require.Contains(t, text, part)
		}
		require.NotContains(t, text, "Config")
		require.NotContains(t, text, "server: ")
		require.True(t, strings.HasPrefix(err.Error(), "server: "), err)
	}
}

// TestUpdateKeepsWhatNewHasSet: a file of limits has neither of these.
func TestUpdateKeepsWhatNewHasSet(t *testing.T) {
	s, stop := startIn(t, Config{
		Admin: Admin{Addr: "127.0.0.1:0"},
		Idle:  idle.Config{ReadTimeout: time.Minute, MaxConnections: 100, OutputLimit: idle.OutputLimit{Total: 1 << 20}},
	})
	defer stop()
	require.NoError(t, s.Update(func(cfg *idle.Config) {
		cfg.ReadTimeout, cfg.MaxConnections, cfg.OutputLimit, cfg.KeepClosed = time.Hour, 0, idle.OutputLimit{}, 0
	}))
	cfg := s.Reaper().Config()
	require.Equal(t, time.Hour, cfg.ReadTimeout)
	limit, _ := s.Limit()
	require.Equal(t, limit, cfg.MaxConnections, "as after a start without it")
	require.Greater(t, limit, 100)
	require.Equal(t, OutputTotal(idle.OutputLimit{}), cfg.OutputLimit.Total)
	require.Equal(t, 128, cfg.KeepClosed)
	cfg.KeepClosed = 5
	(&Config{Admin: Admin{Addr: ":0"}}).complete(&cfg)
	require.Equal(t, 5, cfg.KeepClosed, "it is set")
	cfg.KeepClosed = 0
	(&Config{}).complete(&cfg)
	require.Zero(t, cfg.KeepClosed, "there is no page")
	require.NoError(t, s.Reaper().Update(func(cfg *idle.Config) { cfg.MaxConnections = 5 }))
	require.Equal(t, 5, s.Stats().MaxConnections, "an Update of the Reaper changes it")
}

func TestAServerLimitsItsSources(t *testing.T) {
	h, log := &drained{}, &syncbuf.Buffer{}
	srv, stop := startIn(t, Config{
		Handler: h, Sources: SourceLimits{Connections: 3}, Idle: idle.Config{ReadTimeout: time.Minute}, Logger: logTo(log),
	})
	dialFrom := func(ip string) (net.Conn, bool) {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", srv.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c, pingPong(c, 5*time.Second) == nil
	}
	var first net.Conn
	for i := range 5 {
		c, served := dialFrom("127.0.0.7")
		require.Equal(t, i < 3, served)
		if i == 0 {
			first = c
		}
	}
	require.Equal(t, Rejected{Source: 2}, srv.Stats().Rejected)
	_, served := dialFrom("127.0.0.8")
	require.True(t, served, "another source")
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { _, served := dialFrom("127.0.0.7"); return served }, time.Minute, 10*time.Millisecond)
	stop()
	require.Regexp(t, `connections were rejected" number=\d+ last=.*127.0.0.7/32 has 3 open`, log, "all of them are logged")
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(t, h.reasons, 5, "the handler does not see rejected connections")
}

func TestAServerLimitsTheRateOfAll(t *testing.T) {
	srv, stop := startIn(t, Config{AcceptRate: 20, Idle: idle.Config{ReadTimeout: time.Minute}})
	served := 0
	for range 100 {
		c := dial(t, srv.Addr())
		if pingPong(c, 5*time.Second) == nil {
			served++
		}
		c.Close()
	}
	require.GreaterOrEqual(t, served, 40)
	require.Equal(t, Rejected{AcceptRate: uint64(100 - served)}, srv.Stats().Rejected)
	status := srv.status()
	require.EqualValues(t, 100-served, status.Rejected)
	require.EqualValues(t, 7, Rejected{1, 2, 4}.Total())
	require.NotZero(t, status.Pressure)
	_, why := srv.Limit()
	require.Equal(t, why, status.LimitWhy)
	stop()
}
