package idle

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// report shows the median of ratios, and the quartiles.
func report(b *testing.B, ratios []float64, unit string) {
	b.Helper()
	slices.Sort(ratios)
	b.ReportMetric(median(ratios), unit)
	b.ReportMetric(ratios[len(ratios)/4], unit+"-q1")
	b.ReportMetric(ratios[len(ratios)*3/4], unit+"-q3")
}

// startNetty starts testdata/NettyIdle.java. The error says what is missing.
func startNetty(b *testing.B) (*child, error) {
	jars, _ := filepath.Glob("/usr/share/java/netty-*.jar")
	if _, err := exec.LookPath("java"); err != nil || len(jars) == 0 {
		return nil, errors.New("Netty is left out: install the Debian packages libnetty-java and openjdk-17-jdk-headless")
	}
	dir := b.TempDir()
	jctools, _ := filepath.Glob("/usr/share/java/jctools-core.jar")
	path := strings.Join(slices.Concat([]string{dir}, jars, jctools), ":")
	out, err := exec.Command("java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", path, "-d", dir, "testdata/NettyIdle.java").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("compiling NettyIdle.java: %w: %s", err, out)
	}
	return startCommand(b, exec.Command("java", "-cp", path, "NettyIdle", strconv.Itoa(int(expiryTimeout/time.Millisecond)))), nil
}

// An expiry is the result of one run of BenchmarkMassExpiry.
type expiry struct {
	p99  time.Duration // of the echoes of living connections while dead ones were closed
	gone time.Duration // the lateness that 99 % of the dead connections did not exceed
}

// BenchmarkMassExpiry lets 15,000 connections expire together while 200 others play ping-pong,
// 4,000 echoes a second in all, with two loops. It measures how long the living connections wait.
// One operation is a run of each server in turn, about 12 seconds each; run it with -benchtime 5x.
// The ratios are of runs of the same round.
func BenchmarkMassExpiry(b *testing.B) {
	servers := []string{"reaper", "unbounded", "AfterFunc", "netty"}
	if testing.Short() {
		servers = servers[:1]
	}
	results := map[string][]expiry{}
	for b.Loop() {
		for _, name := range servers {
			var server *child
			if name == "netty" {
				var err error
				if server, err = startNetty(b); err != nil {
					b.Log(err)
					continue
				}
			} else {
				server = startChild(b, expiryPrefix+name)
			}
			e := massExpiry(b, server, 15_000, 200)
			b.Logf("%-10s p99 of living echoes %8.2f ms, of the lateness of dead connections %v", name, ms(e.p99), e.gone.Round(time.Millisecond))
			results[name] = append(results[name], e)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, name := range servers {
		if len(results[name]) == 0 {
			continue
		}
		var p99, gone, ratio []float64
		for i, e := range results[name] {
			p99, gone = append(p99, ms(e.p99)), append(gone, ms(e.gone))
			ratio = append(ratio, float64(results["reaper"][i].p99)/float64(e.p99))
		}
		b.ReportMetric(median(p99), name+"-p99-ms")
		b.ReportMetric(median(gone), name+"-gone-p99-ms")
		if name != "reaper" {
			report(b, ratio, "p99-of-"+name)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func massExpiry(b *testing.B, server *child, dead, living int) expiry {
	b.Helper()
	f := dialFleet(b, server.addr, dead)
	f.send(0, dead, "x") // dialing may have taken as long as the timeout
	p := newPacer(b, server.addr, living, 50*time.Millisecond)
	time.Sleep(expiryTimeout / 4) // lets the work of connecting end
	f.send(0, dead, "x")
	until := time.Now().Add(expiryTimeout + 20*time.Second)
	for f.lost(0, dead) < dead {
		require.True(b, time.Now().Before(until), "%d of %d dead are closed", f.lost(0, dead), dead)
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	samples := p.finish()
	first, last := int64(1<<62), int64(0)
	var late []time.Duration
	for i := range f.conns {
		c := &f.conns[i]
		first, last = min(first, c.closedAt.Load()), max(last, c.closedAt.Load())
		late = append(late, time.Duration(c.closedAt.Load()-c.sentUntil.Load())-expiryTimeout)
	}
	between := func(at int64) time.Duration { return f.start.Add(time.Duration(at)).Sub(p.start) }
	slices.Sort(late)
	e := expiry{quantile(samples, between(first)-20*time.Millisecond, between(last), 0.99), late[len(late)*99/100]}
	f.close()
	server.stop()
	return expiry{cmp.Or(e.p99, 1), e.gone}
}
