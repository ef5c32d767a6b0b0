package server

import (
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
)

func TestAShortageKeepsTheLimitOfTheUser(t *testing.T) {
	for _, limit := range []int{0, 100} {
		r, err := idle.Middleware(&gnet.BuiltinEventEngine{}, idle.Config{ReadTimeout: time.Minute, MaxConnections: limit})
		require.NoError(t, err)
		now := func() int { return r.Config().MaxConnections }
		var s shortage
		begin, end := func() { s.lower(r, 1, false) }, func() { s.lower(r, 100, true) }
		end()
		require.Equal(t, limit, now(), "there was no shortage")
		begin()
		begin()
		require.Equal(t, 1, now())
		s.lower(r, 2, false)
		require.Equal(t, 2, now())
		end()
		require.Equal(t, limit, now())

		begin()
		setMaxConnections(r, 7) // by an Update of the user
		end()
		require.Equal(t, 7, now())
		begin()
		end()
		require.Equal(t, 7, now())
		s.lower(r, 50, false)
		require.Equal(t, 7, now(), "it is lower anyway")
		end()
		require.Equal(t, 7, now())
	}
}
