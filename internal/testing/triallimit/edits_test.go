package triallimit

const (
	maxGoFiles = 8  // Go files without tests that a new limit may change
	maxFiles   = 16 // files that it may change, with tests, documents and the changelog
)

// An edit adds text behind the first place of a file where a text stands.
type edit struct{ file, behind, text string }

// edits add the limit MaxBytes to both front ends: a connection may receive so many bytes.
var edits = []edit{
	{"reap/reason.go", "\tHalfClosed\n", "\t// OverBytes: the connection received more than Config.MaxBytes.\n\tOverBytes\n"},
	{"reap/reason.go", "HalfClosed:       \"half closed\",\n", "\tOverBytes:        \"over bytes\",\n"},
	{"idle/config.go", "type Config struct {\n", maxBytesField},
	{"idlenet/config.go", "type Config struct {\n", maxBytesField},
	{"internal/configtable/table.go", "var Idle = Table{\n", `	{
		Name: "max-bytes", Field: "MaxBytes", Min: 1, Max: noMax, Limit: "Bytes", Reason: reap.OverBytes,
		Help: "close a connection when it has received more ` + "`bytes`" + `",
	},
`},
	{"internal/verdict/limits.go", "type Limits struct {\n", "\tBytes int // received by a connection\n"},
	{"internal/verdict/limits.go", "\t\tevery = lim.Stall\n\t}\n", "\tif lim.Bytes > 0 {\n\t\tevery = Shorter(every, time.Second)\n\t}\n"},
	{"internal/verdict/facts.go", "type Facts struct {\n", "\tReceived int // bytes\n"},
	{"internal/verdict/evidence.go", "\tf.Unread = ev.Found == Unread\n", "\tf.Received = int(ev.Received)\n"},
	{"internal/verdict/rules.go", "var rules = [LastDue + 1]rule{\n", `	reap.OverBytes: {
		deadline: func(lim *Limits, f *Facts) deadline {
			if lim.Bytes == 0 || f.Received <= lim.Bytes {
				return none
			}
			return deadline{}
		},
		report: func(lim *Limits, f *Facts, _ Verdict, _ mono.Time, p *Report) {
			p.Late, p.Bytes, p.Least = 0, f.Received, lim.Bytes
		},
	},
`},

	{exploreTest, "	switch r {\n", "	case reap.OverBytes:\n\t\tp = promise{on: lim.Bytes > 0 && f.Received > lim.Bytes, fixed: true, act: End}\n"},
	{exploreTest, "set := map[Reason]func(*Limits){\n", "\t\t\treap.OverBytes: func(lim *Limits) { lim.Bytes = int(d) },\n"},
	{exploreTest, "base := Facts{\n", "\t\tReceived: 6,\n"},
	{"docs/faq.md", "| `half closed` |", " the peer sent too much | a quota |\n| `over bytes` |"},
	{"docs/verdict.md", "| half closed (package idlenet) |", " see limits | no |\n| over bytes |"},
	{"CHANGELOG.md", "### Added\n", "\n- `idle`, `idlenet`: `Config.MaxBytes` closes a connection that has received more.\n"},
}

const exploreTest = "internal/verdict/explore_test.go"

// generated are the files that a test writes.
var generated = []string{"docs/settings.md", "docs/limits.md"}

const maxBytesField = "\t// MaxBytes is how many bytes a connection may receive.\n\tMaxBytes int\n\n"

// tests are the files that test the limit, with real sockets.
var tests = map[string]string{
	"idlenet/trial_test.go": `package idlenet

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrialLimit(t *testing.T) {
	ln, dial := serveDeaf(t, Config{MaxBytes: 1000, Tick: 20 * time.Millisecond})
	few, kept := dial()
	many, conn := dial()
	for client, n := range map[io.Writer]int{few: 1000, many: 1001} {
		_, err := client.Write(make([]byte, n))
		require.NoError(t, err)
	}
	eventually(t, "it ends", func() bool { return ln.Reason(conn) != nil })
	require.EqualError(t, ln.Reason(conn), "idlenet: connection reaped: over bytes: 1001 bytes, limit 1000")
	require.Nil(t, ln.Reason(kept))
	require.Equal(t, 1000, ln.Limits()["max-bytes"])
}
`,
	"idle/reaper_trial_linux_test.go": `package idle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrialLimit(t *testing.T) {
	s := newSite(t, Config{MaxBytes: 1000, Tick: 20 * time.Millisecond}, nil)
	few, many := dial(t, s.addr), dial(t, s.addr)
	_, err := few.Write(make([]byte, 1000))
	require.NoError(t, err)
	_, err = many.Write(make([]byte, 1001))
	require.NoError(t, err)
	require.EqualError(t, s.reason(t, 0), "idle: connection reaped: over bytes: 1001 bytes, limit 1000")
	require.Equal(t, 1, s.reaper.Connections())
}
`,
}
