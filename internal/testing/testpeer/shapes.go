package testpeer

import (
	"math"
	"math/rand/v2"
)

// Shapes of traffic return the time until the next byte of a peer, in seconds, at most 50: x is the
// same for all bytes of a peer, from 0 to 1, and n is the number of the byte.
var Shapes = map[string]func(r *rand.Rand, x float64, n int) float64{
	"regular":  func(_ *rand.Rand, x float64, _ int) float64 { return 5 + 40*x },
	"jittered": func(r *rand.Rand, x float64, _ int) float64 { return (10 + 20*x) * (0.7 + 0.6*r.Float64()) },
	"bursty": func(r *rand.Rand, _ float64, n int) float64 {
		if n%10 > 0 {
			return 0.2
		}
		return min(6*r.ExpFloat64(), 50)
	},
	"two classes": func(r *rand.Rand, x float64, _ int) float64 {
		if x < 0.85 {
			return 4 + r.Float64()
		}
		return 20 + 25*r.Float64()
	},
	"heavy tail": func(r *rand.Rand, _ float64, _ int) float64 { return min(math.Pow(r.Float64(), -1/1.5), 50) },
}
