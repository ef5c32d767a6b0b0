package load

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
)

// A message is a line with fields of lower-case hex digits:
//
//	CCCCCCCC NNNNNNNN TTTTTTTTTTTTTTTT SSSSSSSS padding
//
// C is the number of the connection, N that of the message on it, T the intended time in
// nanoseconds since NewLoop, and S a CRC-32C of the rest of the line. A message of less than
// checkedSize bytes has C and N, one of less than numberedSize bytes only padding.
const (
	numberedSize = 18
	checkedSize  = 44
	sumAt        = 35 // offset of S
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// padding returns a line of the given size.
func padding(size int) []byte {
	const text = "idlewheel load test "
	line := bytes.Repeat([]byte(text), size/len(text)+1)[:size]
	line[size-1] = '\n'
	return line
}

// repeated returns at least 64 KB of repeated lines, so that one write can send many.
func repeated(line []byte) []byte {
	return bytes.Repeat(line, 1<<16/len(line)+2)
}

// putMessage writes message n of a connection over line, which has its size.
func putMessage(line, padding []byte, connection, n uint32, at int64) {
	copy(line, padding)
	if len(line) < numberedSize {
		return
	}
	putHex(line[0:8], uint64(connection))
	putHex(line[9:17], uint64(n))
	line[8] = ' '
	if len(line) > numberedSize {
		line[17] = ' '
	}
	if len(line) < checkedSize {
		return
	}
	putHex(line[18:34], uint64(at))
	line[34] = ' '
	if len(line) > checkedSize {
		line[sumAt+8] = ' '
	}
	putHex(line[sumAt:sumAt+8], uint64(checksum(line)))
}

// parseMessage returns the numbers in a line. A line without numbers has those given.
func parseMessage(line, padding []byte, connection, n uint32) (gotConnection, got uint32, ok bool) {
	switch {
	case len(line) != len(padding):
		return 0, 0, false
	case len(line) < numberedSize:
		return connection, n, bytes.Equal(line, padding)
	case len(line) < checkedSize && !bytes.Equal(line[numberedSize:], padding[numberedSize:]):
		return 0, 0, false
	}
	var fields [12]byte
	for i, from := range []int{0, 9, sumAt} {
		if from+8 > len(line) || from == sumAt && len(line) < checkedSize {
			break
		}
		if _, err := hex.Decode(fields[4*i:], line[from:from+8]); err != nil {
			return 0, 0, false
		}
	}
	if len(line) >= checkedSize && binary.BigEndian.Uint32(fields[8:]) != checksum(line) {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(fields[0:]), binary.BigEndian.Uint32(fields[4:]), true
}

// checksum returns the CRC-32C of a line without its field S.
func checksum(line []byte) uint32 {
	sum := crc32.Update(0, castagnoli, line[:sumAt])
	return crc32.Update(sum, castagnoli, line[sumAt+8:])
}

// putHex writes v with as many digits as b has bytes.
func putHex(b []byte, v uint64) {
	const digits = "0123456789abcdef"
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = digits[v&15]
		v >>= 4
	}
}
