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
		s.end(r)
		require.Equal(t, limit, now(), "there was no shortage")
		s.begin(r)
		s.begin(r)
		require.Equal(t, 1, now())
		s.end(r)
		require.Equal(t, limit, now())

		s.begin(r)
		setMaxConnections(r, 7) // by an Update of the user
		s.end(r)
		require.Equal(t, 7, now())
		s.begin(r)
		s.end(r)
		require.Equal(t, 7, now())
	}
}
