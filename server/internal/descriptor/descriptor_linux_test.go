package descriptor

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTheLimitIsRaisedToTheHardLimit(t *testing.T) {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	t.Cleanup(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
	lower := was
	lower.Cur = 256
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &lower))
	n, err := RaiseLimit()
	require.NoError(t, err)
	require.EqualValues(t, min(uint64(was.Max), 1<<30), n)
}

func TestOpenFilesAreInUse(t *testing.T) {
	const more = 20
	before, _ := InUse()
	free, ok := LowestFree()
	require.True(t, ok)
	for range more {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer f.Close()
	}
	now, _ := InUse()
	require.GreaterOrEqual(t, now, before+more)
	next, ok := LowestFree()
	require.True(t, ok)
	require.Greater(t, next, free)
}

func TestNoDescriptorIsFreeAtTheLimit(t *testing.T) {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	next, ok := LowestFree()
	require.True(t, ok)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: was.Max}))
	_, ok = LowestFree()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	require.False(t, ok)
}
