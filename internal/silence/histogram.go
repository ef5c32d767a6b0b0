// Package silence has a histogram of silences, of fixed size.
package silence

import (
	"math/bits"
	"time"
)

const (
	// unit is the width of the first buckets.
	unit = 8 * time.Millisecond
	// perOctave is the number of buckets between a silence and twice as much. So a bucket is at
	// most a 32nd as wide as its silences are long.
	perOctave  = 1 << (octaveBits - 1)
	octaveBits = 6
	// Buckets is the number of buckets. The last one begins after 36 hours.
	Buckets = 20 * perOctave
)

// A Histogram has the number of silences in each bucket.
type Histogram [Buckets]uint32

// Bucket returns the bucket of a silence.
func Bucket(d time.Duration) uint16 {
	n := uint64(max(d, 0) / unit)
	octave := max(bits.Len64(n)-octaveBits, 0)
	return uint16(min(octave*perOctave+int(n>>octave), Buckets-1))
}

// Add adds the silences of a Histogram to a list, which is nil or as long.
func (h *Histogram) Add(to []uint64) []uint64 {
	if to == nil {
		to = make([]uint64, Buckets)
	}
	for i, n := range h {
		to[i] += uint64(n)
	}
	return to
}

// Bounds returns the shortest silence of each bucket.
func Bounds() []time.Duration {
	all := make([]time.Duration, Buckets)
	for i := range all {
		octave := max(i/perOctave-1, 0)
		all[i] = time.Duration(i-octave*perOctave) << octave * unit
	}
	return all
}
