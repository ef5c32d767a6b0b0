package idle

import (
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// TestLimitsOfOneConnection gives the first connection each limit, and the others none of them.
func TestLimitsOfOneConnection(t *testing.T) {
	t.Parallel()
	for want, limits := range map[Reason]ConnLimits{
		reap.ReadIdle:     {ReadTimeout: limitOf},
		reap.NoHandshake:  {HandshakeTimeout: limitOf},
		reap.BelowMinRate: {MinRate: MinRate{BytesPerSecond: 1000, Window: limitOf, Always: true}},
		reap.MaxAge:       {MaxAge: limitOf},
		reap.WriteStall:   {WriteStallTimeout: limitOf},
	} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			first, errs := true, make(chan error, 2)
			s := newSite(t, Config{ReadTimeout: time.Hour, Tick: 20 * time.Millisecond}, func(s *site) {
				s.traffic = func(c gnet.Conn) gnet.Action {
					_, _ = c.Discard(-1)
					conn, _ := s.reaper.Conn(c)
					if !first {
						errs <- conn.SetLimits(ConnLimits{MinRate: MinRate{Window: limitOf}})
						return gnet.None
					}
					first = false
					if want == reap.WriteStall {
						_, _ = c.Write(make([]byte, 16<<20))
					}
					errs <- conn.SetLimits(limits)
					return gnet.None
				}
			})
			_, err := dial(t, s.addr).Write([]byte("x"))
			require.NoError(t, err)
			require.NoError(t, <-errs)
			_, err = dial(t, s.addr).Write([]byte("x"))
			require.NoError(t, err)
			require.ErrorContains(t, <-errs, "idle: MinRate.BytesPerSecond of a connection is 0")
			require.ErrorIs(t, s.reason(t, 0), want)
			require.Equal(t, 1, s.reaper.Connections())
		})
	}
}
