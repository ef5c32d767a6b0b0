package reap

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idlewheel/idlewheel/internal/silence"
)

func TestTextSaysWhatATimeoutWouldHaveDone(t *testing.T) {
	s := Silences{
		Window: 50 * time.Minute, Timeout: time.Minute, Least: 4 * time.Second, Connections: 10000,
		Dead: 212, DeadFor: 212 * 61, Living: make([]uint32, silence.Buckets),
	}
	s.Living[silence.Bucket(39*time.Second)], s.Living[silence.Bucket(41*time.Second)] = 4, 3
	const begin = "In the last 50m0s a timeout of "
	tests := []struct {
		timeout time.Duration
		want    string
	}{
		{40 * time.Second, begin + "40s would have cut 3 of 10000 living connections, and would have found the 212 dead ones 21s sooner on average."},
		{70 * time.Second, begin + "1m10s would have cut 0 of 10000 living connections, and would have found the 212 dead ones 9s later on average."},
		{3 * time.Second, "Not enough is known yet about a timeout of 3s."},
		{26 * time.Minute, "Not enough is known yet about a timeout of 26m0s."},
		{math.MaxInt64, "Not enough is known yet about a timeout of 2562047h47m16.854775807s."},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, s.Text(test.timeout))
	}
	s.Dead, s.Sampled = 0, true
	assert.Equal(t, begin+"40s would have cut at least 3 of 10000 living connections.", s.Text(40*time.Second))
	s.Connections = 0
	assert.Equal(t, "Not enough is known yet about a timeout of 40s.", s.Text(40*time.Second))
}
