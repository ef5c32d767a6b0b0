package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswer(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "",
		"hello":                      "hello",
		"PING\n":                     "PONG\n",
		"PING\r\n":                   "PONG\r\n",
		"a\nPING\nb\n":               "a\nPONG\nb\n",
		"PING PING\n":                "PING PING\n",
		"xPING\n":                    "xPING\n",
		"ping\n":                     "ping\n",
		"PING\r\r\n":                 "PING\r\r\n",
		"\n\nPING\n\n":               "\n\nPONG\n\n",
		"\x00\xffPING\n\x00PING\r\n": "\x00\xffPING\n\x00PING\r\n",
		"P":                          "", // the beginning of a PING
		"PING\r":                     "",
		"line\nPIN":                  "line\n",
	} {
		out, used, _ := answer([]byte(in), false)
		require.Equal(t, want, string(out), "%q", in)
		require.LessOrEqual(t, used, len(in))
	}
}

// TestAnswerDoesNotDependOnHowBytesArrive splits the input into pieces of each size.
func TestAnswerDoesNotDependOnHowBytesArrive(t *testing.T) {
	in := "PING\nhello PING\r\nPING\r\nPINGO\nP\nPI\r\n\r\nPING\n"
	want := "PONG\nhello PING\r\nPONG\r\nPINGO\nP\nPI\r\n\r\nPONG\n"
	for size := 1; size <= len(in); size++ {
		var out strings.Builder
		var pending []byte
		open := false
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			pending = append(pending, rest[:n]...)
			rest = rest[n:]
			var o []byte
			var used int
			o, used, open = answer(pending, open)
			out.Write(o)
			pending = append([]byte(nil), pending[used:]...)
		}
		require.Empty(t, pending)
		require.Equal(t, want, out.String(), "in pieces of %d", size)
	}
}
