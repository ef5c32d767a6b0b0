package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// nettyNames are the names with a row in docs/netty.md. They are the public and protected
// members of these classes in Netty 4.1, read with javap, and the additions of 4.2.
var nettyNames = map[string][]string{
	"IdleStateHandler": {
		"readerIdleTime", "writerIdleTime", "allIdleTime", "unit", "observeOutput", "getReaderIdleTimeInMillis",
		"getWriterIdleTimeInMillis", "getAllIdleTimeInMillis", "channelIdle", "newIdleStateEvent", "resetReadTimeout", "resetWriteTimeout",
		"handlerAdded", "handlerRemoved", "channelRegistered", "channelActive", "channelInactive", "channelRead", "channelReadComplete",
		"write",
	},
	"IdleState": {"READER_IDLE", "WRITER_IDLE", "ALL_IDLE", "values", "valueOf"},
	"IdleStateEvent": {
		"state", "isFirst", "toString", "FIRST_READER_IDLE_STATE_EVENT", "READER_IDLE_STATE_EVENT", "FIRST_WRITER_IDLE_STATE_EVENT",
		"WRITER_IDLE_STATE_EVENT", "FIRST_ALL_IDLE_STATE_EVENT", "ALL_IDLE_STATE_EVENT",
	},
	"ReadTimeoutHandler":    {"timeout", "readTimedOut"},
	"WriteTimeoutHandler":   {"timeout", "writeTimedOut"},
	"TimeoutException":      {"fillInStackTrace"},
	"ReadTimeoutException":  {"INSTANCE"},
	"WriteTimeoutException": {"INSTANCE"},
	"HashedWheelTimer": {
		"threadFactory", "tickDuration", "unit", "ticksPerWheel", "leakDetection", "maxPendingTimeouts", "taskExecutor", "start", "stop",
		"newTimeout", "pendingTimeouts", "WORKER_STATE_INIT", "WORKER_STATE_STARTED", "WORKER_STATE_SHUTDOWN", "finalize",
	},
	"Timer":     {"newTimeout", "stop"},
	"Timeout":   {"timer", "task", "isExpired", "isCancelled", "cancel"},
	"TimerTask": {"run", "cancelled"},
	"Around":    {"SO_KEEPALIVE", "CONNECT_TIMEOUT_MILLIS", "fireUserEventTriggered", "ChannelGroup", "SslHandler", "setHandshakeTimeout"},
}

func TestEachNameOfNettyHasARow(t *testing.T) {
	d := readDocument(t, filepath.Join(root, "docs", "netty.md"))
	rows := map[string][]string{} // by section
	var section string
	for _, line := range d.lines {
		if m := headingPattern.FindStringSubmatch(line); m != nil {
			section = m[1]
		}
		if strings.HasPrefix(line, "|") {
			rows[section] = append(rows[section], line)
		}
	}
	for class, members := range nettyNames {
		for _, name := range append([]string{class}, members...) {
			if name == "Around" {
				continue
			}
			found := false
			for section, lines := range rows {
				if !strings.Contains(section, class) {
					continue
				}
				for _, line := range lines {
					first, _, _ := strings.Cut(line[1:], " | ")
					found = found || regexp.MustCompile(`\b`+name+`\b`).MatchString(first)
				}
			}
			assert.True(t, found, "netty.md has no row for %s under a heading with %s", name, class)
		}
	}
}
