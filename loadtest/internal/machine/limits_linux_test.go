package machine

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A fakeSystem is the content of /proc by file name.
type fakeSystem map[string]string

// able returns a system that can hold 100,000 connections with both ends, as in demand.
func able() fakeSystem {
	return fakeSystem{
		"self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n" +
			"Max processes             1024                 96365                processes \n" +
			"Max open files            1024                 20000                files     \n",
		"sys/fs/nr_open":                       "1048576\n",
		"sys/fs/file-nr":                       "752\t0\t2466183\n",
		"sys/fs/file-max":                      "2466183\n",
		"sys/net/ipv4/ip_local_port_range":     "32768\t60999\n",
		"sys/net/core/somaxconn":               "4096\n",
		"sys/net/ipv4/tcp_max_syn_backlog":     "4096\n",
		"sys/net/netfilter/nf_conntrack_max":   "262144\n",
		"sys/net/netfilter/nf_conntrack_count": "100\n",
		"meminfo":                              "MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:   2000000 kB\n",
		"net/sockstat":                         "sockets: used 16\nTCP: inuse 4 orphan 0 tw 2685 alloc 4 mem 188\nUDP: inuse 0 mem 0\n",
		"sys/net/ipv4/tcp_mem":                 "287901\t383869\t575802\n",
		"sys/kernel/pid_max":                   "4194304\n",
	}
}

func demand() result.Setup {
	return result.Setup{Connections: 100_000, Clients: 6, Servers: 8, Sources: 5}
}

// check checks the system with the given number of CPUs.
func (r fakeSystem) check(w result.Setup, cpus int) Limits {
	fs := fstest.MapFS{}
	for name, text := range r {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files{fs}.check(w, cpus)
}

// find returns the limit with that name, or an empty one.
func find(checks Limits, name string) Limit {
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	return Limit{}
}

func TestSufficientAndUnknownLimitsAreFine(t *testing.T) {
	for name, machine := range map[string]fakeSystem{"sufficient": able(), "not known": {}} {
		checks := machine.check(demand(), 2)
		require.Len(t, checks, 13)
		for _, c := range checks {
			require.Equal(t, Fine, c.Level, "%s: %+v", name, c)
			require.Empty(t, c.Fix, c.Name)
			require.NotEmpty(t, c.Need, c.Name)
			require.Equal(t, name == "not known" && c.Name != "CPUs", c.Have == "not known", c.Name)
		}
	}
}

func TestChecks(t *testing.T) {
	limits := func(files, processes string) string {
		return "Max processes  0  " + processes + "  processes\nMax open files  0  " + files + "  files\n"
	}
	const (
		client, server   = "descriptors of a client", "descriptors of a server"
		own              = "descriptors of loadtest"
		tracked, portset = "net.netfilter.nf_conntrack_max", "local ports"
		backlogName      = "net.ipv4.tcp_max_syn_backlog"
		portRange        = "sys/net/ipv4/ip_local_port_range"
		nfMax, nfCount   = "sys/net/netfilter/nf_conntrack_max", "sys/net/netfilter/nf_conntrack_count"
	)
	for _, test := range []struct {
		check, file, text string // file replaces that of able(); an empty text removes it
		change            func(*result.Setup)
		want              Level
		have, need, fix   string // "" is not compared, except a fix of a Fine limit
	}{
		{check: "fs.nr_open", file: "sys/fs/nr_open", text: "16731", have: "16,731", need: "16,731"},
		{check: "fs.nr_open", file: "sys/fs/nr_open", text: "16730", want: Cannot, fix: "sysctl -w fs.nr_open=16731"},
		{check: "fs.nr_open", file: "sys/fs/nr_open", text: "99999", change: func(w *result.Setup) { w.Servers = 1 }, want: Cannot, need: "100,064"},

		{check: client, file: "self/limits", text: limits("16731", "9999"), have: "16,731", need: "16,731"},
		{check: client, file: "self/limits", text: limits("16730", "9999"), want: Cannot, have: "16,730",
			fix: "--clients 7, or as root ulimit -n 16731, or LimitNOFILE=16731 in a unit of systemd"},
		{check: client, file: "self/limits", text: limits("64", "9999"), want: Cannot,
			fix: "as root ulimit -n 16731, or LimitNOFILE=16731 in a unit of systemd"},
		{check: client, file: "self/limits", text: limits("unlimited", "9999"), have: "unlimited"},
		{check: client, file: "self/limits", text: limits("much", "9999")},
		{check: client, file: "self/limits", text: "Max open files\n"},

		{check: own, file: "self/limits", text: limits("106", "9999"), have: "106", need: "106"},
		{check: own, file: "self/limits", text: limits("105", "9999"), want: Cannot,
			fix: "as root ulimit -n 1024, or LimitNOFILE=1024 in a unit of systemd"},

		{check: server, file: "self/limits", text: limits("12564", "9999"), have: "12,564", need: "12,564"},
		{check: server, file: "self/limits", text: limits("12563", "9999"), want: Cannot,
			fix: "--servers 9, or as root ulimit -n 12564, or LimitNOFILE=12564 in a unit of systemd"},

		{check: "fs.file-max", file: "sys/fs/file-max", text: "201648", have: "201,648", need: "201,648"},
		{check: "fs.file-max", file: "sys/fs/file-max", text: "201647", want: Cannot, fix: "sysctl -w fs.file-max=201648"},
		{check: "fs.file-max", file: "sys/fs/file-nr", need: "200,896"},
		{check: "fs.file-max", file: "sys/fs/file-max", text: "9223372036854775807", have: "unlimited"},
		{check: "fs.file-max", change: func(w *result.Setup) { w.Servers = 0 }, need: "101,136"},

		{check: portset, file: portRange, text: "40000 61051", have: "105,260 (21,052 for each source and target)", need: "100,000"},
		{check: portset, file: portRange, text: "40000 61000", want: Slow,
			fix: "--sources 6, or sysctl -w net.ipv4.ip_local_port_range='10240 65535'"},
		{check: portset, file: portRange, text: "40000 59999", want: Slow, have: "100,000 (20,000 for each source and target)"},
		{check: portset, file: portRange, text: "40000 59998", want: Cannot,
			fix: "--sources 6, or sysctl -w net.ipv4.ip_local_port_range='10240 65535'"},
		{check: portset, change: func(w *result.Setup) { w.Sources, w.Servers = 1, 0 }, want: Cannot,
			have: "28,232 (28,232 for each source and target)", fix: "--sources 4 (each added by ip address add ADDRESS dev DEVICE)"},
		{check: portset, change: func(w *result.Setup) { w.Sources, w.Targets = 1, make([]string, 4) }, have: "112,928 (28,232 for each source and target)"},
		{check: portset, file: portRange, text: "32768", have: "not known"},
		{check: portset, file: portRange, text: "60999 32768", have: "not known"},
		{check: portset, file: portRange, text: "1 99999", have: "not known"},

		{check: "net.core.somaxconn", file: "sys/net/core/somaxconn", text: "4095", want: Slow, need: "4,096",
			fix: "sysctl -w net.core.somaxconn=4096"},
		{check: "net.core.somaxconn", file: "sys/net/core/somaxconn", text: "4096"},
		{check: backlogName, file: "sys/net/ipv4/tcp_max_syn_backlog", text: "4095", want: Slow,
			fix: "sysctl -w net.ipv4.tcp_max_syn_backlog=4096"},
		{check: backlogName, file: "sys/net/ipv4/tcp_max_syn_backlog", text: "4096"},

		{check: tracked, file: nfMax, text: "100100", have: "100,100", need: "100,100"},
		{check: tracked, file: nfMax, text: "100099", want: Cannot, fix: "sysctl -w net.netfilter.nf_conntrack_max=100100"},
		{check: tracked, file: nfCount, text: "0", change: func(w *result.Setup) { w.Connections = 1_000_000 }, have: "262,144, not in use"},
		{check: tracked, file: nfCount, change: func(w *result.Setup) { w.Connections = 1_000_000 }, want: Cannot, need: "1,000,000"},

		{check: "memory available", file: "meminfo", text: "MemAvailable: 1484375 kB", have: "1.42 GiB", need: "1.42 GiB"},
		{check: "memory available", file: "meminfo", text: "MemAvailable: 1484374 kB", want: Slow,
			fix: "--connections 99999, or 1 KiB more memory"},
		{check: "memory available", file: "meminfo", text: "MemAvailable: 1113282 kB", want: Slow},
		{check: "memory available", file: "meminfo", text: "MemAvailable: 1113281 kB", want: Cannot,
			fix: "--connections 74999, or 362 MiB more memory"},
		{check: "memory available", change: func(w *result.Setup) { w.Servers = 0 }, need: "725 MiB"},
		{check: "memory available", file: "meminfo", text: "MemTotal: 5 kB"},

		{check: "net.ipv4.tcp_mem (pages)", file: "sys/net/ipv4/tcp_mem", text: "1 2 40188", have: "40,188", need: "40,188"},
		{check: "net.ipv4.tcp_mem (pages)", file: "sys/net/ipv4/tcp_mem", text: "1 2 40187", want: Slow,
			fix: "sysctl -w net.ipv4.tcp_mem='20094 30141 40188'"},
		{check: "net.ipv4.tcp_mem (pages)", file: "net/sockstat", need: "40,000"},

		{check: "threads", file: "self/limits", text: limits("20000", "224"), have: "224", need: "224"},
		{check: "threads", file: "self/limits", text: limits("20000", "223"), want: Cannot, fix: "as root ulimit -u 224"},
		{check: "threads", file: "sys/kernel/pid_max", text: "223", want: Cannot, have: "223", fix: "sysctl -w kernel.pid_max=448"},
		{check: "threads", file: "self/limits", have: "4,194,304"},
		{check: "threads", file: "sys/kernel/pid_max", have: "96,365"},
	} {
		t.Run(fmt.Sprintf("%s %s %q %v", test.check, test.file, test.text, test.want), func(t *testing.T) {
			machine, w := able(), demand()
			if machine[test.file] = test.text; test.text == "" {
				delete(machine, test.file)
			}
			if test.change != nil {
				test.change(&w)
			}
			c := find(machine.check(w, 2), test.check)
			require.Equal(t, test.check, c.Name)
			require.Equal(t, test.want, c.Level, "%+v", c)
			if test.have != "" {
				require.Equal(t, test.have, c.Have)
			}
			if test.need != "" {
				require.Equal(t, test.need, c.Need)
			}
			if test.fix != "" || test.want == Fine {
				require.Equal(t, test.fix, c.Fix)
			}
			if test.want == Fine {
				return
			}
			for fix := range strings.SplitSeq(c.Fix, ", or ") {
				if fixedMachine, fixedWish, ok := apply(fix, machine, w); ok {
					require.Equal(t, Fine, find(fixedMachine.check(fixedWish, 2), test.check).Level, "after %s", fix)
				}
			}
		})
	}
}

// apply applies a fix that is a flag or a sysctl.
func apply(fix string, machine fakeSystem, w result.Setup) (fakeSystem, result.Setup, bool) {
	for flag, field := range map[string]*int{
		"--clients": &w.Clients, "--servers": &w.Servers, "--sources": &w.Sources, "--connections": &w.Connections,
	} {
		if n, _ := fmt.Sscanf(fix, flag+" %d", field); n == 1 {
			return machine, w, true
		}
	}
	setting, ok := strings.CutPrefix(fix, "sysctl -w ")
	if ok {
		name, text, _ := strings.Cut(setting, "=")
		machine["sys/"+strings.ReplaceAll(name, ".", "/")] = strings.Trim(text, "'")
	}
	return machine, w, ok
}

func TestProcessors(t *testing.T) {
	c := find(able().check(demand(), 1), "CPUs")
	require.Equal(t, Limit{Name: "CPUs", Have: "1", Need: "2", Fix: "a machine with more, or the target on another one", Level: Slow}, c)
}

func TestTargetElsewhere(t *testing.T) {
	w := demand()
	w.Servers = 0
	checks := able().check(w, 2)
	for _, name := range []string{"descriptors of a server", "net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"} {
		require.Empty(t, find(checks, name), "it concerns the other machine")
	}
	require.Len(t, checks, 10)
}

func TestFewConnectionsNeedNoQueue(t *testing.T) {
	w := demand()
	w.Connections = 1000
	require.Empty(t, find(able().check(w, 2), "net.core.somaxconn"))
	w.Connections = 1001
	require.NotEmpty(t, find(able().check(w, 2), "net.core.somaxconn"))
}

func TestCheckThisMachine(t *testing.T) {
	checks := Check(result.Setup{Connections: 1, Clients: 1})
	require.Equal(t, Fine, find(checks, "descriptors of a client").Level)
	for _, name := range []string{"descriptors of a client", "local ports", "memory available"} {
		require.NotEqual(t, "not known", find(checks, name).Have, name)
	}
}

func TestPrint(t *testing.T) {
	fine := Limit{Name: "CPUs", Have: "2", Need: "2"}
	slow := Limit{Name: "net.core.somaxconn", Have: "128", Need: "4,096", Fix: "sysctl -w net.core.somaxconn=4096", Level: Slow}
	cannot := Limit{Name: "fs.nr_open", Have: "1,024", Need: "20,064", Fix: "sysctl -w fs.nr_open=20064", Level: Cannot}
	for _, test := range []struct {
		checks Limits
		want   string
	}{
		{Limits{fine, slow, cannot, fine}, `
        check               have   need
ok      CPUs                2      2
slow    net.core.somaxconn  128    4,096
        fix: sysctl -w net.core.somaxconn=4096
cannot  fs.nr_open          1,024  20,064
        fix: sysctl -w fs.nr_open=20064
ok      CPUs                2      2
This machine cannot do it: 1 limit is too low.
`},
		{Limits{fine}, `
    check  have  need
ok  CPUs   2     2
This machine can do it.
`},
	} {
		var b strings.Builder
		test.checks.Print(&b)
		require.Equal(t, test.want, "\n"+b.String())
	}
}

// TestFewDescriptorsAreTheOnlyCause has 200 descriptors per process: the many processes that they
// need do not fit either, and the number of threads is not to blame.
func TestFewDescriptorsAreTheOnlyCause(t *testing.T) {
	few := able()
	few["self/limits"] = "Max processes  0  9999  processes\nMax open files  0  200  files\n"
	checks := few.check(result.Setup{Connections: 100_000, Clients: 1389, Servers: 1588, Sources: 100}, 2)
	for _, c := range checks {
		require.Equal(t, c.Name == "descriptors of loadtest", c.Level == Cannot, "%+v", c)
	}
}
