package server

import (
	"syscall"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
)

// starves takes all descriptors when the engine boots, so that no loop can start.
type starves struct {
	echo
	before syscall.Rlimit
}

func (h *starves) OnBoot(gnet.Engine) gnet.Action {
	next, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	_ = syscall.Close(next)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(next), Max: h.before.Max}); err != nil {
		panic(err)
	}
	return gnet.None
}

func TestEngineThatCannotStartAfterBooting(t *testing.T) {
	h := &starves{}
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &h.before))
	result := make(chan error, 1)
	go func() {
		result <- run(t.Context(), Config{Addresses: []string{"127.0.0.1:0"}, Handler: h, Idle: idleConfig, NumEventLoop: 2})
	}()
	err := await(t, result)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &h.before))
	require.ErrorIs(t, err, syscall.EMFILE, "Run returns the error, and does not wait for an engine that never ran")
}
