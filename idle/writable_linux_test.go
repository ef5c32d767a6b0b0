package idle

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

// TestAProducerWritesAsFastAsItsReaderReads writes numbers without end to a reader of 1 Mbit/s.
func TestAProducerWritesAsFastAsItsReaderReads(t *testing.T) {
	t.Parallel()
	t.Run("on the event loop", func(t *testing.T) { testProducer(t, (*producer).writeMore, (*producer).writeMore) })
	t.Run("on another goroutine", func(t *testing.T) {
		testProducer(t, func(p *producer) { go p.writeAsync() }, func(p *producer) { p.resumed <- struct{}{} })
	})
}

const (
	producerHigh  = 64 << 10
	producerChunk = 8 << 10 // bytes of a write
	producerRate  = 1e6 / 8 // bytes that the reader reads in a second
	producerTime  = 3 * time.Second
	producerStep  = 20 * time.Millisecond
	socketBuffer  = 32 << 10 // bytes, of each side; the kernel doubles it
)

// A producer writes numbers to a connection.
type producer struct {
	c       gnet.Conn
	conn    Conn
	next    uint64
	resumed chan struct{}
	ended   context.Context
	most    atomic.Int64 // bytes that waited after a write
	stops   atomic.Int64
}

// chunk returns the next numbers.
func (p *producer) chunk() (b []byte) {
	for range producerChunk / 8 {
		b = binary.BigEndian.AppendUint64(b, p.next)
		p.next++
	}
	return b
}

// isWritable measures the output after a write.
func (p *producer) isWritable() bool {
	p.most.Store(max(p.most.Load(), int64(p.c.OutboundBuffered())))
	return p.conn.Writable()
}

func (p *producer) writeMore() {
	for p.isWritable() {
		_, _ = p.c.Write(p.chunk())
	}
}

func (p *producer) writeAsync() {
	wrote := make(chan bool, 1)
	for {
		err := p.c.AsyncWrite(p.chunk(), func(_ gnet.Conn, err error) error {
			wrote <- err == nil && p.isWritable()
			return nil
		})
		if err != nil {
			return
		}
		select {
		case more := <-wrote:
			if !more {
				<-p.resumed
			}
		case <-p.ended.Done(): // gnet may drop the write
			return
		}
	}
}

func testProducer(t *testing.T, start, resume func(*producer)) {
	fair.TryParallel(t, func(t testing.TB) {
		ended, end := context.WithCancel(context.Background())
		p := &producer{resumed: make(chan struct{}, 1), ended: ended}
		cfg := Config{ReadTimeout: time.Minute, OutputLimit: OutputLimit{Hard: producerHigh + 2*producerChunk}}
		cfg.OutputMarks = OutputMarks{High: producerHigh, OnWritable: func(_ gnet.Conn, writable bool) {
			switch {
			case p.ended.Err() != nil:
				t.Error("called after OnClose")
			case writable:
				resume(p)
			default:
				p.stops.Add(1)
			}
		}}
		s := newSite(t, cfg, func(s *site) {
			s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
				_ = c.SetWriteBuffer(socketBuffer)
				p.c, p.conn = c, handle(s.reaper, c)
				start(p)
				return nil, gnet.None
			}
			s.closed = func(gnet.Conn, error) gnet.Action { end(); close(p.resumed); return gnet.None }
		})
		c := dial(t, s.addr)
		require.NoError(t, c.(*net.TCPConn).SetReadBuffer(socketBuffer))
		b := make([]byte, 8*int(producerRate*producerStep.Seconds()/8))
		read, number, began := 0, uint64(0), time.Now()
		for ; time.Since(began) < producerTime; read += len(b) {
			time.Sleep(time.Until(began.Add(time.Duration(float64(read) / producerRate * float64(time.Second)))))
			require.NoError(t, c.SetReadDeadline(time.Now().Add(producerTime)))
			_, err := io.ReadFull(c, b)
			require.NoError(t, err)
			for i := 0; i < len(b); i += 8 {
				require.Equal(t, number, binary.BigEndian.Uint64(b[i:]))
				number++
			}
		}
		took := time.Since(began)
		infos, err := list(context.Background(), s.reaper, "output", 1)
		require.NoError(t, err)
		t.Logf("%d bytes in %v, at most %d waited, %d stops, now %+v", read, took, p.most.Load(), p.stops.Load(), infos)
		require.Empty(t, s.reasons())
		require.LessOrEqual(t, p.most.Load(), int64(producerHigh+producerChunk))
		require.Greater(t, p.most.Load(), int64(producerHigh), "the high mark was passed")
		require.Greater(t, p.stops.Load(), int64(2), "the producer went on")
		require.InDelta(t, producerRate, float64(read)/took.Seconds(), producerRate/20, "the reader never waited")
		eventually(t, "not writable", func() bool { return s.reaper.Stats().Unwritable == 1 })
		infos, err = list(context.Background(), s.reaper, "output", 1)
		require.NoError(t, err)
		require.True(t, infos[0].Unwritable)
		require.NoError(t, c.Close())
		s.reason(t, 0)
		require.Zero(t, s.reaper.Stats().Unwritable)
	})
}
