package reap

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTextSaysWhatATimeoutWouldHaveDone(t *testing.T) {
	s := Silences{
		Window: 50 * time.Minute, Timeout: time.Minute, Least: 4 * time.Second, Connections: 10212,
		Bounds: []time.Duration{0, 30 * time.Second, 50 * time.Second, 60 * time.Second, 62 * time.Second},
		Living: []uint64{0, 4, 1, 0, 0}, Ended: []uint64{9, 0, 2, 0, 1}, Dead: []uint64{0, 0, 0, 212, 0},
	}
	const begin = "In the last 50m0s a timeout of "
	tests := []struct {
		timeout time.Duration
		want    string
	}{
		{40 * time.Second, begin + "40s would have cut 3 of 10000 living connections, and would have found the 212 dead ones 21s sooner on average."},
		{70 * time.Second, begin + "1m10s would have cut 0 of 10000 living connections, and would have found the 212 dead ones 9s later on average."},
		{3 * time.Second, "Not enough is known yet about a timeout of 3s."},
		{26 * time.Minute, "Not enough is known yet about a timeout of 26m0s."},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, s.Text(test.timeout))
	}
	assert.Equal(t, 3.0, s.Try(40*time.Second).Ended)
	s.Dead, s.Sampled = nil, true
	assert.Equal(t, begin+"40s would have cut at least 3 of 10212 living connections.", s.Text(40*time.Second))
	assert.False(t, s.Try(math.MaxInt64).Known)
	s.Connections = 0
	assert.False(t, s.Try(40*time.Second).Known)
}
