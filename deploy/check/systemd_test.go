package check

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// unit returns the last value of each setting of the unit, with the lines joined that end in a backslash.
func unit(t *testing.T) map[string]string {
	t.Helper()
	settings := map[string]string{}
	text := strings.ReplaceAll(string(read(t, "systemd/idlewheel.service")), "\\\n", " ")
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			settings[key] = value
		}
	}
	return settings
}

func TestTheUnitStopsAfterTheDrainAndNotBefore(t *testing.T) {
	u := unit(t)
	command := strings.Fields(u["ExecStart"])
	wantFlags(t, must(t, echoHeartbeat), command[1:])
	stop, err := time.ParseDuration(u["TimeoutStopSec"])
	if err != nil {
		t.Fatal(err)
	}
	delay, timeout := durationOf(t, command, "drain-delay"), durationOf(t, command, "drain-timeout")
	if timeout <= 0 || stop < delay+timeout+10*time.Second {
		t.Errorf("TimeoutStopSec is %v, for a drain of %v and %v", stop, delay, timeout)
	}
	if file, _ := valueOf(command, "admin-token-file"); !strings.HasPrefix(file, "%d/") ||
		!strings.HasPrefix(u["LoadCredential"], strings.TrimPrefix(file, "%d/")+":") {
		t.Errorf("the token file is %s, and the credential %s", file, u["LoadCredential"])
	}
	if u["KillSignal"] != "SIGTERM" || !strings.Contains(u["ExecReload"], "-HUP $MAINPID") {
		t.Errorf("KillSignal=%s, ExecReload=%s", u["KillSignal"], u["ExecReload"])
	}
}

// TestTheUnitPleasesSystemd lets systemd-analyze read it, with the program where it is built.
func TestTheUnitPleasesSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	text := strings.ReplaceAll(string(read(t, "systemd/idlewheel.service")), "/usr/local/bin/echo-heartbeat", must(t, echoHeartbeat))
	name := filepath.Join(t.TempDir(), "idlewheel.service")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if said, err := exec.CommandContext(ctx, analyze, "verify", "--man=no", name).CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
	// 0 is best and 100 worst. What is left is that it has the network, and sees /proc and the file system of the host.
	const exposure = "15"
	said, err := exec.CommandContext(ctx, analyze, "security", "--no-pager", "--offline=yes", "--threshold="+exposure, name).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, said)
	}
}
