package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// follow makes the Shard follow an edited Config, and adapts some connections.
func (p *testPort) follow(adapt int, edit func(*Config)) {
	cfg := p.Set.Config
	edit(&cfg)
	p.Follow(p.Set.next(cfg, p.Set.overlay, p.now))
	p.AdaptSome(adapt)
}

// TestAnUpdateFollowsBeforeAllAreAdapted changes the settings twice. Some connections are adapted
// to the first change, one was opened after it, and the others know only the last one.
func TestAnUpdateFollowsBeforeAllAreAdapted(t *testing.T) {
	for _, on := range [][3]bool{{}, {false, true, false}, {true, false, false}, {false, true, true}, {false, false, true}} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
			var conns []*testConn
			open := func() {
				_, c := p.open()
				conns = append(conns, c)
			}
			for range 4 {
				open()
			}
			p.pass(time.Minute)
			set := func(adapt, n int) {
				p.follow(adapt, func(cfg *Config) {
					cfg.TCPKeepAlive = time.Minute
					if on[n] {
						cfg.TCPKeepAlive = 2 * time.Minute
					}
					cfg.Limits.Rate = verdict.Rate{BytesPerSecond: 1, Window: time.Second, Always: on[n]}
					cfg.Limits.Heartbeat = verdict.Heartbeat{Interval: time.Hour, MaxMissed: 1, PongsOnly: !on[n]}
				})
			}
			set(4, 0)
			for _, c := range conns {
				c.BeginMessage(p.clock, p.Set.Common.Rate)
			}
			set(2, 1)
			open()
			p.now = p.now.Add(p.Clock.Tick())
			set(5, 2)
			require.True(t, p.IsAdapted())
			for id, c := range conns {
				f := p.Facts(uint32(id), c, p.now)
				require.Equal(t, p.Set.TCPKeepAlive, p.keepAlive[c], "connection %d", id)
				same := on == [3]bool{} // nothing has changed
				require.Equal(t, on[2] || same && id < 4, f.RatedSince != 0, "connection %d, a message is open", id)
				require.Equal(t, same, p.now != f.LastPing, "connection %d, pings count anew", id)
			}
		})
	}
}
