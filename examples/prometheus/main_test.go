package main

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// read returns a file.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// startPrometheus runs Prometheus with the files of the recipe: it scrapes every second, and alerts
// do not wait. It returns a function that asks its API.
func startPrometheus(t *testing.T, target string) (get func(path string) string) {
	t.Helper()
	dir := t.TempDir()
	alerts := filepath.Join(dir, "alerts.yaml")
	const rules = "../../deploy/prometheus/alerts.yaml"
	require.NoError(t, os.WriteFile(alerts, []byte(regexp.MustCompile(`for: \d+m\b`).ReplaceAllString(read(t, rules), "for: 1s")), 0o600))
	config := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(config, []byte(strings.NewReplacer(
		"15s", "1s", rules, alerts, "127.0.0.1:7080", target,
	).Replace(read(t, "prometheus.yaml"))), 0o600))
	p := recipe.Client(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0")
	addr := p.Await(`msg="Listening on" address=(\S+)`)[1]
	p.Await("Server is ready to receive web requests")
	return func(path string) string {
		return recipe.Run(t, "curl", "--silent", "--show-error", "--fail", "http://"+addr+path)
	}
}

// TestAlert fills the server up to its limit of connections, then lets all of them time out, and
// ends it.
func TestAlert(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-metrics", "127.0.0.1:0", "-max-connections", "20", "-read-timeout", "6s")
	get := startPrometheus(t, server.Await(`metrics on (\S+)`)[1])
	firing := func(alert string) bool {
		return regexp.MustCompile(`"alertname":"` + alert + `"[^}]*}[^}]*}[^}]*"state":"firing"|` +
			`"alertname":"` + alert + `".{0,600}?"state":"firing"`).MatchString(get("/api/v1/alerts"))
	}
	value := func(query string) string {
		found := regexp.MustCompile(`"value":\[[^,]*,"([^"]*)"\]`).FindStringSubmatch(get("/api/v1/query?query=" + url.QueryEscape(query)))
		if found == nil {
			return ""
		}
		return found[1]
	}
	recipe.Eventually(t, "the first scrape", func() bool { return value("up") == "1" })
	require.False(t, firing("IdlewheelNearConnectionLimit"))

	const clients = 19 // 95 %
	for range clients {
		c := recipe.Client(t, "socat", "-", "TCP:"+addr)
		c.Say("hello")
		c.Await("hello")
	}
	recipe.Eventually(t, "the alert fires", func() bool { return firing("IdlewheelNearConnectionLimit") })
	recipe.Eventually(t, "the messages are counted", func() bool { return value("echo_messages_total") == "19" })
	recipe.Eventually(t, "closed connections are counted by their reasons", func() bool {
		return value(`sum(idlewheel_connections_closed_total{reason=~"read_idle|shed"})`) == "19"
	})
	require.Equal(t, clients, server.Count("reaped"))
	recipe.Eventually(t, "the alert ends", func() bool { return !firing("IdlewheelNearConnectionLimit") })

	require.NoError(t, server.Process.Kill())
	server.AwaitEnd()
	recipe.Eventually(t, "the alert of a server that is down fires", func() bool { return firing("IdlewheelDown") })
}
