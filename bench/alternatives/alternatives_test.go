package main

import (
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

// The program runs itself as a server, and the test binary does the same. The Java source is named
// from the folder of the module.
func TestMain(m *testing.M) {
	runAsChild()
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestServersCloseSilentConnections(t *testing.T) {
	// The clock of tnet moves once a second: with less room it may close living connections.
	l := load{n: 200, living: 10, heartbeat: time.Second / 2, timeout: 2 * time.Second, stop: 3 * time.Second}
	var all sync.WaitGroup // the servers wait most of the time, so all of them run at once
	for _, k := range kinds() {
		all.Go(func() {
			f, err := measure(k, l)
			if err != nil {
				t.Errorf("%s: %v", k.name, err)
				return
			}
			if _, ok := f["latest"]; ok != (k.name != base) || f["early"] != 0 && k.name != "tnet" {
				t.Errorf("%s: lateness is known: %v; %g closed too early", k.name, ok, f["early"])
			}
			if k.name != netty && (f["bytes"] <= 0 || f["echo"] <= 0) {
				t.Errorf("%s: %g bytes for each connection, %g µs for each echo", k.name, f["bytes"], f["echo"])
			}
			if cut, ok := f["cut"]; strings.Contains(k.name, "idle") && (!ok || cut != 0) {
				t.Errorf("%s: %g %% of the living connections were cut off, measured: %v", k.name, cut, ok)
			}
		})
	}
	all.Wait()
}

func TestLivingClientsSendWhatIsLateBeforeTheyStop(t *testing.T) {
	conn, server := net.Pipe()
	time.AfterFunc(10*livingPeriod, func() { echoAll(server, 0) })
	stop := new(atomic.Bool)
	stop.Store(true)
	if all, err := exchange(conn, time.Now(), stop); err != nil || len(all) < 10 {
		t.Errorf("%d messages, error %v; want all that were due", len(all), err)
	}
}

func TestRender(t *testing.T) {
	results := rounds.Results{
		"gnet alone":            {"bytes": {3000, 1000}},
		"gnet, idle.Middleware": {"bytes": {4000}, "cut": {0}, "early": {0}},
	}
	got := render(rounds.Options{Runs: 2}, load{n: 4000}, results)
	for _, want := range []string{
		"go -C bench run ./alternatives --runs 2",
		"with 4,000 connections",
		"| gnet alone | 2,000 (1,000–3,000) | - | - | - | - | - | - | - |",
		"| gnet, idle.Middleware | 4,000 ×2.00 | - | - | - | - | 0 | - | 0 |",
		"| Netty | - | - | - | - | - | - | - | not installed |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}
