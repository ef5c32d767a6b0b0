package idle

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// flood is an OnOpen that writes so many bytes that most of them wait.
func flood(size int) func(gnet.Conn) ([]byte, gnet.Action) {
	return func(c gnet.Conn) ([]byte, gnet.Action) {
		_, _ = c.Write(make([]byte, size))
		return nil, gnet.None
	}
}

// requireReset reads until the end of the stream, which must be a reset.
func requireReset(t testing.TB, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.Copy(io.Discard, c)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestWriteStall(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{WriteStallTimeout: limitOf}, func(s *site) { s.open = flood(16 << 20) })
	began := time.Now()
	c := dial(t, s.addr)
	sendEvery(t, c, limitOf/8) // the peer is alive and reads nothing: zero window
	reason := s.requireReaped(t, began, limitOf, reap.WriteStall)
	require.GreaterOrEqual(t, reason.Lasted, limitOf)
}

// TestOverLimit has a peer that takes nothing of a large answer.
func TestOverLimit(t *testing.T) { fair.TryParallel(t, testOverLimit) }

func testOverLimit(t testing.TB) {
	var log syncbuf.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := newSite(t, Config{OutputLimit: OutputLimit{Hard: 1 << 20}, Logger: logger}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); flood(16 << 20)(c); return gnet.None }
	})
	c := dial(t, s.addr)
	began := time.Now()
	send(t, c, "x")
	reason := s.requireReaped(t, began, verdict.LargeFor, reap.OverLimit)
	require.Less(t, time.Since(began), verdict.LargeFor+2*time.Second)
	require.Equal(t, 1<<20, reason.LimitBytes)
	require.Greater(t, reason.Bytes, 1<<20)
	requireReset(t, c)
	flushLog(s.reaper)
	require.Contains(t, log.String(), fmt.Sprintf("bytes=%d bytes-limit=%d\n", reason.Bytes, 1<<20))
}

// TestAReaderOfOneLargeAnswerIsNotCutOff has readers at full speed, at 10 and at 2 Mbit/s. The
// limit is 1 MiB. The short form reads for 13 s.
func TestAReaderOfOneLargeAnswerIsNotCutOff(t *testing.T) {
	t.Parallel()
	// The sizes are in MiB, by bytes per second. 0 is full speed.
	readers, most, sizes := 3, 13*time.Second, map[int][]int{0: {8}, 10e6 / 8: {16}, 2e6 / 8: {8}}
	if needs.IsLong() {
		readers, most, sizes = 20, time.Hour, map[int][]int{0: {1, 8, 64}, 10e6 / 8: {1, 8, 64}, 2e6 / 8: {8}}
	}
	for rate, all := range sizes {
		for _, size := range all {
			t.Run(fmt.Sprintf("%d MiB at %d", size, rate), func(t *testing.T) {
				if !needs.IsLong() { // the larger tests need the memory
					t.Parallel()
				}
				s := newSite(t, Config{OutputLimit: OutputLimit{Hard: 1 << 20}}, func(s *site) { s.open = flood(size << 20) })
				var reading sync.WaitGroup
				t.Cleanup(reading.Wait) // after the closes
				for range readers {
					c := dial(t, s.addr)
					if rate > 0 {
						require.NoError(t, c.(*net.TCPConn).SetReadBuffer(1<<16))
					}
					reading.Go(func() {
						for n, began := 0, time.Now(); n < size<<20 && time.Since(began) < most; {
							if rate > 0 {
								time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(rate))))
							}
							read, err := io.CopyN(io.Discard, c, 1<<15)
							if n += int(read); !assert.NoError(t, err, "after %d bytes", n) {
								return
							}
						}
					})
				}
				reading.Wait()
				require.Empty(t, s.reasons())
			})
		}
	}
}

func TestSlowPeer(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		cfg := Config{MinRate: MinRate{BytesPerSecond: 500, Window: limitOf, Grace: limitOf}}
		s := newSite(t, cfg, func(s *site) {
			s.traffic = func(c gnet.Conn) gnet.Action {
				switch b, _ := c.Next(-1); {
				case bytes.Contains(b, []byte("begin")):
					handle(s.reaper, c).BeginMessage()
				case bytes.Contains(b, []byte("end")):
					handle(s.reaper, c).EndMessage()
				}
				return gnet.None
			}
		})
		silent, done, fast, slow := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
		_ = silent // no message is open
		for _, c := range []net.Conn{done, fast, slow} {
			send(t, c, "begin")
		}
		began := time.Now()
		sendEvery(t, slow, limitOf/20) // 50 bytes a second
		time.Sleep(limitOf / 4)
		send(t, done, "end")
		sendEach(t, fast, limitOf/10, strings.Repeat("b", 100)) // 2,500 bytes a second
		reason := s.requireReaped(t, began, 2*limitOf, reap.BelowMinRate)
		require.Less(t, reason.Bytes, reason.LimitBytes)
		require.Equal(t, 200, reason.LimitBytes)
		time.Sleep(4 * limitOf)
		require.Len(t, s.reasons(), 1, "the other three connections stay")
	})
}

// TestAUnixPeerThatReadsIsNotStalled has a peer that reads 100 KB a second, while slightly more is
// written, and a peer that echoes with four messages in flight.
func TestAUnixPeerThatReadsIsNotStalled(t *testing.T) {
	t.Parallel()
	for _, echoes := range []bool{false, true} {
		fair.RunParallel(t, fmt.Sprintf("echoes=%v", echoes), func(t testing.TB) {
			const length = 5 * time.Second
			b := make([]byte, 1000)
			s := newSite(t, Config{WriteStallTimeout: time.Second}, func(s *site) {
				s.listen = unixAddr(t)
				if s.traffic = nil; !echoes {
					s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
						go func() {
							for until := time.Now().Add(length); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
								_ = c.AsyncWrite(make([]byte, 1200), nil)
							}
						}()
						return nil, gnet.None
					}
				}
			})
			c := dial(t, s.addr)
			if echoes {
				send(t, c, strings.Repeat("x", 4*len(b)))
			}
			require.NoError(t, c.SetDeadline(time.Now().Add(length)))
			n, err := 0, error(nil)
			for ; err == nil; n++ {
				time.Sleep(10 * time.Millisecond)
				if _, err = io.ReadFull(c, b); echoes && err == nil {
					_, err = c.Write(b)
				}
			}
			require.Empty(t, s.reasons(), "the peer reads continuously: %d messages, %v", n, err)
		})
	}
}

func TestAUnixConnectionIsNotCheckedMoreOften(t *testing.T) {
	t.Parallel()
	for _, network := range networks {
		s := newSite(t, Config{WriteTimeout: limitOf, Tick: 10 * time.Millisecond}, func(s *site) {
			s.listen = network.addr(t)
			s.traffic = func(c gnet.Conn) gnet.Action {
				_, _ = c.Discard(-1)
				handle(s.reaper, c).BeginMessage()
				handle(s.reaper, c).EndMessage()
				return gnet.None
			}
		})
		c := dial(t, s.addr)
		began := time.Now()
		for range 300 {
			send(t, c, "x")
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		require.LessOrEqual(t, s.reaper.Stats().Rescheduled, uint64(took/(50*time.Millisecond)), "%s: checks in %v", network.name, took)
	}
}
