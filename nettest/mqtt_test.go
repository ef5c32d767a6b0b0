package nettest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// A broker is an MQTT server. As a hook of it, it counts pings and notes the ends of clients.
type broker struct {
	mqtt.HookBase
	*listener
	mu    sync.Mutex
	pings map[string]int   // guarded by mu; by client
	ended map[string]error // guarded by mu; by client
}

func serveMQTT(t testing.TB, cfg idlenet.Config) *broker {
	t.Helper()
	program(t, "mosquitto_sub")
	b := &broker{listener: listen(t, cfg), pings: make(map[string]int), ended: make(map[string]error)}
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, server.AddHook(new(auth.AllowHook), nil))
	require.NoError(t, server.AddHook(b, nil))
	require.NoError(t, server.AddListener(listeners.NewNet("idlenet", b.listener)))
	require.NoError(t, server.Serve())
	t.Cleanup(func() { _ = server.Close() })
	return b
}

// Provides says which events the hook wants.
func (*broker) Provides(event byte) bool {
	return event == mqtt.OnPacketRead || event == mqtt.OnDisconnect
}

// OnPacketRead counts pings.
func (b *broker) OnPacketRead(c *mqtt.Client, p packets.Packet) (packets.Packet, error) {
	if p.FixedHeader.Type == packets.Pingreq {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pings[c.ID]++
	}
	return p, nil
}

// OnDisconnect notes why a client has left.
func (b *broker) OnDisconnect(c *mqtt.Client, err error, _ bool) {
	if reason := b.Reason(c.Net.Conn); reason != nil {
		err = errors.Join(err, reason)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[c.ID] = err
}

// of returns the number of pings of a client, and how it has ended.
func (b *broker) of(client string) (pings int, gone bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err, gone = b.ended[client]
	return b.pings[client], gone, err
}

// mosquitto starts a client of mosquitto for the topic test.
func (b *broker) mosquitto(program, client string, args ...string) *process {
	b.t.Helper()
	host, port, err := net.SplitHostPort(b.address())
	require.NoError(b.t, err)
	return start(b.t, exec.Command(program, append([]string{"-h", host, "-p", port, "-i", client, "-t", "test", "-q", "1"}, args...)...))
}

// lines returns the lines that a process prints.
func (p *process) lines() <-chan string {
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(p.out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// TestMQTTStoppedSubscriber stops one of two subscribers, which acknowledge a message per beat.
func TestMQTTStoppedSubscriber(t *testing.T) {
	t.Parallel()
	b := serveMQTT(t, idlenet.Config{ReadTimeout: timeout})
	publisher := b.mosquitto("mosquitto_pub", "publisher", "-l")
	living, stopped := b.mosquitto("mosquitto_sub", "living"), b.mosquitto("mosquitto_sub", "stopped")
	livingLines, stoppedLines := living.lines(), stopped.lines()
	publish := func() {
		_, err := io.WriteString(publisher.in, "beat\n")
		require.NoError(t, err)
	}
	for began := time.Now(); len(livingLines) == 0 || len(stoppedLines) == 0; time.Sleep(beat) {
		require.Less(t, time.Since(began), 20*time.Second, "the subscribers connect")
		publish()
	}
	everyBeat(long, publish)
	b.requireNone()
	stopped.signal(syscall.SIGSTOP)
	began := time.Now()
	for gone := false; !gone; _, gone, _ = b.of("stopped") {
		require.Less(t, time.Since(began), 20*time.Second, "the stopped subscriber ends")
		publish()
		time.Sleep(beat)
	}
	_, _, err := b.of("stopped")
	require.ErrorIs(t, err, reap.ReadIdle)
	heard := len(livingLines)
	everyBeat(long, publish)
	eventually(t, "the living subscriber hears", func() bool { return len(livingLines) >= heard+5 })
	require.Len(t, b.reasons(), 1)
}

// TestMQTTKeepAlive has subscribers of which only pings come, one in 5 s, the least of mosquitto.
func TestMQTTKeepAlive(t *testing.T) {
	t.Parallel()
	b := serveMQTT(t, idlenet.Config{ReadTimeout: 9 * time.Second})
	const subscribers = 3
	for n := range subscribers {
		b.mosquitto("mosquitto_sub", fmt.Sprint("subscriber ", n), "-k", "5")
	}
	eventually(t, "the subscribers send pings", func() bool {
		for n := range subscribers {
			if pings, _, _ := b.of(fmt.Sprint("subscriber ", n)); pings < 2 {
				return false
			}
		}
		return true
	})
	b.requireNone()
	require.Equal(t, subscribers, b.Connections())
}
