package idle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A quotaCase is a server that gets a part of a core.
type quotaCase struct {
	quota, period time.Duration
	timeout       time.Duration
}

var quotaCases = []quotaCase{
	{5 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond},
	{50 * time.Millisecond, 100 * time.Millisecond, time.Second},
}

// longQuotaCases are the cases of the long form.
var longQuotaCases = []quotaCase{
	{10 * time.Millisecond, time.Second, 2 * time.Second},
	{10 * time.Millisecond, time.Second, 500 * time.Millisecond}, // away for longer than the timeout
	{250 * time.Millisecond, time.Second, time.Second},
	{5 * time.Millisecond, 100 * time.Millisecond, 5 * time.Second},
}

func (q quotaCase) String() string {
	return fmt.Sprintf("%v of %v with %v", q.quota, q.period, q.timeout)
}

// play is the name of the server, which is always busy: without a limit it takes a whole core.
func (q quotaCase) play() string { return "quota " + q.timeout.String() }

func init() {
	for _, q := range append(quotaCases, longQuotaCases...) {
		var once sync.Once
		plays[q.play()] = play{cfg: Config{ReadTimeout: q.timeout}, open: func(*witness, gnet.Conn) {
			once.Do(func() {
				go func() {
					for spins := new(atomic.Int64); ; {
						spins.Add(1)
					}
				}()
			})
		}}
	}
}

// TestAQuotaClosesNoLivingClientAndKeepsNoDeadOne gives a server a part of a core, by a quota of
// the kernel. Its living clients send at intervals of 0.3 to 0.8 timeouts; the dead ones send
// nothing. Each time without processor may count as an outage, and moves the deadlines of the dead.
func TestAQuotaClosesNoLivingClientAndKeepsNoDeadOne(t *testing.T) {
	t.Parallel()
	cases := quotaCases
	if needs.IsLong() {
		cases = append(cases, longQuotaCases...)
	}
	for _, q := range cases {
		t.Run(q.String(), func(t *testing.T) {
			fair.TryParallel(t, func(attempt testing.TB) { q.test(t, attempt) })
		})
	}
}

// test fails for good if the dead are not closed at all. All else compares times.
func (q quotaCase) test(whole *testing.T, t testing.TB) {
	const living, dead = 40, 20
	group := newCPUGroup(t, q.quota, q.period)
	server := startPlay(t, q.play(), "tcp://127.0.0.1:0")
	f := dialFleet(t, server.addr, living+dead)
	b := f.beat(living, rand.New(rand.NewPCG(1, 0)), q.timeout*3/10, q.timeout*8/10)
	f.send(living, living+dead, "the only beat")
	require.NoError(t, group.write("cgroup.procs", fmt.Sprint(server.cmd.Process.Pid)))
	bound := q.bound()
	for began := time.Now(); f.lost(living, living+dead) < dead && time.Since(began) < bound+5*room; {
		time.Sleep(10 * time.Millisecond)
	}
	cut, late := b.cut(q.timeout / 10)
	assert.Less(t, late, living, "clients that were late themselves")
	assert.Zero(t, cut, "living clients were closed, besides %d that were late themselves", late)
	throttled, periods := group.throttled(t)
	if throttled < periods*3/4 {
		fair.Busy(t, "the server got less than its quota in %d of %d periods", periods-throttled, periods)
	}
	require.Equal(whole, dead, f.lost(living, living+dead), "dead clients that were closed in %v, without processor in %d of %d periods:\n%s",
		bound+5*room, throttled, periods, server.stderr)
	shortest, longest := f.silences(living, living+dead)
	assert.GreaterOrEqual(t, shortest, q.timeout, "never early")
	assert.LessOrEqual(t, longest, bound+room)
	t.Logf("the dead were closed after %v to %v, at most %v; %d living clients were late themselves; without processor in %d of %d periods",
		shortest, longest, bound, late, throttled, periods)
	if q.quota <= q.period/4 {
		assert.Greater(t, throttled, periods/2)
	}
}

// bound returns the time after which docs/verdict.md promises that the dead are closed. Each outage
// is as long as the part of a period without processor. The part of it beyond the timeout is added
// once in a period.
func (q quotaCase) bound() time.Duration {
	away := q.period - q.quota
	bound := verdict.MaxTimeouts*q.timeout + away
	beyond := max(away-q.timeout, 0)
	return time.Duration(float64(bound) / (1 - float64(beyond)/float64(q.period)))
}

// A cpuGroup is the directory of a control group. Its processes get a part of a core.
type cpuGroup string

// newCPUGroup needs root and control groups of version 1 or 2 that can be written. Without them the
// test is skipped.
func newCPUGroup(t testing.TB, quota, period time.Duration) cpuGroup {
	t.Helper()
	q, p := fmt.Sprint(quota.Microseconds()), fmt.Sprint(period.Microseconds())
	first, err1 := makeCPUGroup(t, "/sys/fs/cgroup/cpu", [][2]string{{"cpu.cfs_period_us", p}, {"cpu.cfs_quota_us", q}})
	if err1 == nil {
		return first
	}
	second, err2 := makeCPUGroup(t, "/sys/fs/cgroup", [][2]string{{"cpu.max", q + " " + p}})
	if err2 != nil {
		t.Skipf("no process can be given a part of a core here: %v; %v", err1, err2)
	}
	return second
}

// makeCPUGroup makes a group in another one, and writes to files of it.
func makeCPUGroup(t testing.TB, in string, files [][2]string) (g cpuGroup, err error) {
	dir, err := os.MkdirTemp(in, "idlewheel")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // its processes have ended by then
	for _, file := range files {
		if err = cpuGroup(dir).write(file[0], file[1]); err != nil {
			return "", err
		}
	}
	return cpuGroup(dir), nil
}

// write writes to a file, which must exist: a directory that is no control group has none.
func (g cpuGroup) write(name, text string) error {
	f, err := os.OpenFile(filepath.Join(string(g), name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// throttled returns in how many periods the quota was used up, and the number of all periods.
func (g cpuGroup) throttled(t testing.TB) (n, all int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(string(g), "cpu.stat"))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "nr_throttled %d", &n)
		_, _ = fmt.Sscanf(line, "nr_periods %d", &all)
	}
	return n, all
}
