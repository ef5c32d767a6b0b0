package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unit returns the last value of each setting of the unit.
func unit(t *testing.T) map[string]string {
	t.Helper()
	last := map[string]string{}
	for key, values := range settings(t) {
		last[key] = values[len(values)-1]
	}
	return last
}

// settings returns all values of each setting of the unit. It joins lines that end in a backslash.
func settings(t *testing.T) map[string][]string {
	t.Helper()
	settings := map[string][]string{}
	text := strings.ReplaceAll(string(read(t, "systemd/idlewheel.service")), "\\\n", " ")
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			settings[key] = append(settings[key], value)
		}
	}
	return settings
}

func TestTheUnitStopsAfterTheDrainAndNotBefore(t *testing.T) {
	u := unit(t)
	command := strings.Fields(u["ExecStart"])
	wantFlags(t, must(t, echoHeartbeat), command[1:])
	stop, err := time.ParseDuration(u["TimeoutStopSec"])
	require.NoError(t, err)
	delay, timeout := durationOf(t, command, "drain-delay"), durationOf(t, command, "drain-timeout")
	assert.False(t, timeout <= 0 || stop < delay+timeout+10*time.Second,
		"TimeoutStopSec is %v, for a drain of %v and %v", stop, delay, timeout)
	if file, _ := valueOf(command, "admin-token-file"); !strings.HasPrefix(file, "%d/") ||
		!strings.HasPrefix(u["LoadCredential"], strings.TrimPrefix(file, "%d/")+":") {
		t.Errorf("the token file is %s, and the credential %s", file, u["LoadCredential"])
	}
	// The signal of a reload is SIGHUP by default, and ExecReload would be another reload.
	assert.False(t, u["KillSignal"] != "SIGTERM" || u["Type"] != "notify-reload" ||
		u["ReloadSignal"] != "" || u["ExecReload"] != "",
		"KillSignal=%s, Type=%s, ReloadSignal=%s, ExecReload=%s", u["KillSignal"], u["Type"], u["ReloadSignal"], u["ExecReload"])
}

// sizeOf parses a number with a unit: K, M, G or T of systemd, or the same with iB, as in
// GOMEMLIMIT.
func sizeOf(t *testing.T, name, text, behind string) int64 {
	t.Helper()
	m := regexp.MustCompile(`^(\d+)([KMGT])` + behind + `$`).FindStringSubmatch(text)
	require.NotNil(t, m, "%s is %q", name, text)
	n, err := strconv.ParseInt(m[1], 10, 64)
	require.NoError(t, err, name)
	return n << (10 * (1 + strings.Index("KMGT", m[2])))
}

func TestTheUnitHasDescriptorsAndMemoryForConnections(t *testing.T) {
	u := unit(t)
	descriptors, err := strconv.ParseInt(u["LimitNOFILE"], 10, 64)
	assert.False(t, err != nil || descriptors < 1<<16, "LimitNOFILE is %s: that are few connections", u["LimitNOFILE"])
	value, _ := strings.CutPrefix(u["Environment"], "GOMEMLIMIT=")
	heap, all := sizeOf(t, "GOMEMLIMIT", value, "iB"), sizeOf(t, "MemoryMax", u["MemoryMax"], "")
	checkMemory(t, memoryPlan{
		heap: heap, all: all, connections: descriptors, outputLimit: int64(atoi(t, limitIn(t, "systemd/limits", "output-limit"))),
		perSource: int64(numberOf(t, strings.Fields(u["ExecStart"]), "max-per-source")),
		buffer:    int64(numberOf(t, strings.Fields(u["ExecStart"]), "socket-buffer")),
	})
}

// TestTheUnitRestartsAfterACrashUpToALimit checks that restarts are fast enough to reach
// StartLimitBurst.
func TestTheUnitRestartsAfterACrashUpToALimit(t *testing.T) {
	u := unit(t)
	assert.Equal(t, "on-failure", u["Restart"], "Restart=%s", u["Restart"])
	pause, err := time.ParseDuration(u["RestartSec"])
	require.NoError(t, err)
	interval, err := time.ParseDuration(u["StartLimitIntervalSec"])
	require.NoError(t, err)
	if burst, err := strconv.Atoi(u["StartLimitBurst"]); err != nil || burst < 2 || time.Duration(burst)*pause >= interval {
		t.Errorf("it starts every %v: that is never %s times in %v", pause, u["StartLimitBurst"], interval)
	}
}

// TestTheSandboxHasTheNetwork checks that the sandbox allows the server its network.
func TestTheSandboxHasTheNetwork(t *testing.T) {
	u := unit(t)
	assert.Equal(t, "yes", u["NoNewPrivileges"], "NoNewPrivileges=%s", u["NoNewPrivileges"])
	families := strings.Fields(u["RestrictAddressFamilies"])
	for _, family := range []string{"AF_INET", "AF_INET6", "AF_UNIX"} {
		assert.Contains(t, families, family, "RestrictAddressFamilies=%s, without %s", u["RestrictAddressFamilies"], family)
	}
	allowed := false
	for _, filter := range settings(t)["SystemCallFilter"] {
		groups, denies := strings.CutPrefix(filter, "~")
		for group := range strings.FieldsSeq(groups) {
			allowed = allowed || !denies && group == "@system-service"
			// A server makes no call of these groups.
			assert.False(t, denies && group != "@privileged" && group != "@resources",
				"SystemCallFilter=%s: untested without %s", filter, group)
		}
	}
	assert.True(t, allowed, "SystemCallFilter does not allow @system-service")
}

// TestTheUnitServesClientsAndHidesTheAdminListener checks the addresses on a machine, which has no
// network policy.
func TestTheUnitServesClientsAndHidesTheAdminListener(t *testing.T) {
	command := strings.Fields(unit(t)["ExecStart"])
	addr, _ := valueOf(command, "addr")
	host, _, err := net.SplitHostPort(addr)
	assert.False(t, err != nil || host != "", "clients cannot reach %q: %v", addr, err)
	admin, _ := valueOf(command, "admin")
	if at, err := netip.ParseAddrPort(admin); err != nil || !at.Addr().IsLoopback() {
		t.Errorf("other machines can reach %q: %v", admin, err)
	}
}

// TestTheUnitReadsWhatTheReadmeInstalls checks the paths of the unit.
func TestTheUnitReadsWhatTheReadmeInstalls(t *testing.T) {
	u, readme := unit(t), string(read(t, "README.md"))
	command := strings.Fields(u["ExecStart"])
	limits, _ := valueOf(command, "limits")
	_, token, _ := strings.Cut(u["LoadCredential"], ":")
	for _, line := range []string{
		"-o " + command[0] + " ./cmd/echo-heartbeat\n", "deploy/systemd/limits " + limits + "\n", "> " + token + ")\n",
		"deploy/systemd/60-idlewheel.conf /etc/sysctl.d/", "deploy/systemd/idlewheel.service /etc/systemd/system/\n",
	} {
		assert.Contains(t, readme, line, "no command of the README ends with %q", line)
	}
}

// TestSysctlsAreThoseOfTheKernel checks that the keys exist, except those with a leading minus.
func TestSysctlsAreThoseOfTheKernel(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/core/somaxconn"); err != nil {
		t.Skip("this kernel has no sysctls to compare with: ", err)
	}
	values := map[string]int64{}
	for name, value := range sysctls(t) {
		name, optional := strings.CutPrefix(name, "-")
		values[name] = int64(atoi(t, value))
		file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		_, err := os.Stat(file)
		if _, none := os.Stat(filepath.Dir(file)); none != nil && optional {
			continue // no firewall tracks connections here
		}
		assert.NoError(t, err)
	}
	if n := values["net.core.somaxconn"]; n < 4096 {
		t.Errorf("net.core.somaxconn is %d, less than Linux has by itself since 5.4", n)
	}
	if n := values["net.ipv4.tcp_max_syn_backlog"]; n < values["net.core.somaxconn"] || values["net.ipv4.tcp_syncookies"] != 1 {
		t.Errorf("tcp_max_syn_backlog is %d: set at least somaxconn, and tcp_syncookies to 1", n)
	}
	descriptors, err := strconv.ParseInt(unit(t)["LimitNOFILE"], 10, 64)
	require.NoError(t, err)
	if n := values["net.netfilter.nf_conntrack_max"]; n <= descriptors {
		t.Errorf("the firewall knows %d connections, and the server may have %d", n, descriptors)
	}
}

// TestSystemdAcceptsTheUnit runs systemd-analyze, with the path of the program that the tests
// build.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	text := strings.ReplaceAll(string(read(t, "systemd/idlewheel.service")), "/usr/local/bin/echo-heartbeat", must(t, echoHeartbeat))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var version int
	if said, err := exec.CommandContext(ctx, analyze, "--version").Output(); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscanf(string(said), "systemd %d", &version); err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	if version < 253 {
		text = strings.ReplaceAll(text, "Type=notify-reload", "Type=notify")
	}
	name := filepath.Join(t.TempDir(), "idlewheel.service")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	if said, err := exec.CommandContext(ctx, analyze, "verify", "--man=no", name).CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
	// 0 is best and 100 worst. The rest is access to the network, to /proc and to the file system
	// of the host.
	const exposure = "15"
	said, err := exec.CommandContext(ctx, analyze, "security", "--no-pager", "--offline=yes", "--threshold="+exposure, name).CombinedOutput()
	assert.NoError(t, err, "systemd-analyze security: %v\n%s", err, said)
}

// sysctls returns the lines of the file for sysctl.d.
func sysctls(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for line := range strings.Lines(string(read(t, "systemd/60-idlewheel.conf"))) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && !strings.HasPrefix(name, "#") {
			values[name] = value
		}
	}
	return values
}
