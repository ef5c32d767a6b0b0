package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

const testToken = "0123456789abcdef0123456789abcdef"

// serveWithAdmin runs serve with an admin listener and returns its address.
func serveWithAdmin(t *testing.T, flags ...string) (url string) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(testToken+"\n"), 0o600))
	var out syncbuf.Buffer
	serveOn(t, &out, append(flags, "--admin", "127.0.0.1:0", "--admin-token-file", token)...)
	printed := regexp.MustCompile(`admin on (http://\S+/)`)
	require.Eventually(t, func() bool { return printed.MatchString(out.String()) }, 10*time.Second, time.Millisecond)
	return printed.FindStringSubmatch(out.String())[1]
}

// TestTheAdminOfServeSpeaksOfFlags sends values that the API refuses.
func TestTheAdminOfServeSpeaksOfFlags(t *testing.T) {
	url := serveWithAdmin(t, "--read-timeout", "4s")
	for body, want := range map[string]string{
		`{"read-timeout":"-1s"}`:                  "read-timeout is -1s: set a positive duration such as 60s, or 0 for none",
		`{"read-timeout":"1ms"}`:                  "read-timeout is 1ms, shorter than tick of 20ms",
		`{"max-age-grace":"1s"}`:                  "max-age-grace is 1s without max-age",
		`{"heartbeat":"1s"}`:                      `"heartbeat" cannot be changed here: take read-timeout,`,
		`{"write-timeout":"1s","all-timeout":""}`: `all-timeout is "": write a duration such as "30s"`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url+"api/timeouts", strings.NewReader(body))
		require.NoError(t, err)
		req.Close = true
		req.Header.Set("Authorization", "Bearer "+testToken)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		var answer struct{ Error string }
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
		resp.Body.Close()
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
		require.Contains(t, answer.Error, want)
		require.NotContains(t, answer.Error, "Config")
	}
}
