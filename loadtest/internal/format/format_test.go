package format

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 7 * time.Microsecond: "7 µs", 1234 * time.Microsecond: "1.23 ms", 999_700: "1 ms", 98_400 * time.Microsecond: "98.4 ms",
		1500 * time.Millisecond: "1.5 s", 94 * time.Second: "94 s", 134 * time.Second: "2 min 14 s", 3 * time.Hour: "3 h 0 min",
		-5 * time.Millisecond: "-5 ms", -134 * time.Second: "-2 min 14 s", 1: "0.001 µs", 1_500 * time.Hour: "1,500 h 0 min",
	} {
		require.Equal(t, want, Duration(d), d.String())
	}
}

func TestBytes(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 B", 1023: "1,023 B", 1312: "1.28 KiB", 64 << 30: "64 GiB", -2048: "-2 KiB",
	} {
		require.Equal(t, want, Bytes(v))
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0004: "0", -0.0004: "0", 0.0126: "0.013", 0.5: "0.5", -0.25: "-0.25", 9.996: "10", 12.34: "12.3", 1234.5: "1,234",
	} {
		require.Equal(t, want, Number(v), v)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1_234_567: "1,234,567"} {
		require.Equal(t, want, Count(n))
	}
	require.Equal(t, "-1,000", Count(-1000))
	require.Equal(t, "1 group", Plural(1, "group", "groups"))
	require.Equal(t, "2,000 groups", Plural(2000, "group", "groups"))
}
