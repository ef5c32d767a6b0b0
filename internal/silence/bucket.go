// Package silence sorts silences by their length into a fixed number of buckets.
package silence

import (
	"math"
	"time"
)

const (
	// unit is the length up to which silences are in the first bucket.
	unit = time.Millisecond
	// perOctave is the number of buckets between a silence and twice as much. So the longest
	// silences of a bucket are 2.2 % longer than the shortest ones.
	perOctave = 32
	// Buckets is the number of buckets. The last one begins after 36 hours.
	Buckets = 27 * perOctave
)

// Bucket returns the bucket of a silence.
func Bucket(d time.Duration) uint16 {
	octaves := math.Log2(float64(max(d, unit)) / float64(unit))
	return uint16(min(perOctave*octaves, Buckets-1))
}
