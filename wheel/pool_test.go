package wheel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPool(t *testing.T) {
	_, err := NewPool(0, 1)
	require.Error(t, err)
	pool, err := NewPool(1, 1)
	require.NoError(t, err)
	began, hold, ran := make(chan bool), make(chan bool), make(chan bool, 1)
	require.NoError(t, pool.Execute(func() { began <- true; <-hold }))
	<-began
	require.NoError(t, pool.Execute(func() { ran <- true }))
	require.ErrorIs(t, pool.Execute(func() {}), ErrPoolFull)
	close(hold)
	pool.Close()
	require.True(t, <-ran, "what waited has run")
	require.ErrorIs(t, pool.Execute(func() {}), ErrPoolClosed)
	pool.Close()
}

func TestPoolRefusesNil(t *testing.T) {
	pool, err := NewPool(1, 1)
	require.NoError(t, err)
	defer pool.Close()
	require.ErrorIs(t, pool.Execute(nil), ErrNoTask)
}
