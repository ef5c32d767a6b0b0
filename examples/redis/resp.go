package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/idle"
)

// maxBytes is the limit of a string, and maxArgs that of the strings of a command.
const (
	maxBytes = 1 << 20
	maxArgs  = 16
)

// parse returns the first command of b and its length, which is 0 while the command is incomplete.
func parse(b []byte) (args []string, n int, err error) {
	count, n, err := number(b, '*')
	if n == 0 || err != nil {
		return nil, 0, err
	}
	for range count {
		size, head, err := number(b[n:], '$')
		if n += head; head == 0 || err != nil || len(b) < n+size+2 {
			return nil, 0, err
		}
		args = append(args, string(b[n:n+size]))
		n += size + 2
	}
	return args, n, nil
}

// number reads a line such as "$5", and returns its length, 0 while it is incomplete.
func number(b []byte, kind byte) (value, n int, err error) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 && len(b) < 16 {
		return 0, 0, nil
	}
	if end < 1 || b[0] != kind {
		return 0, 0, errors.New("protocol error")
	}
	value, err = strconv.Atoi(string(b[1:end]))
	if err != nil || value < 1 && kind == '*' || value < 0 || value > maxBytes || value > maxArgs && kind == '*' {
		return 0, 0, errors.New("protocol error: invalid length")
	}
	return value, end + 2, nil
}

func bulk(s string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(s), s) }

func failure(err error) []byte {
	return fmt.Appendf(nil, "-ERR %s\r\n", strings.ReplaceAll(err.Error(), "\n", "; "))
}

func done(err error) []byte {
	if err != nil {
		return failure(err)
	}
	return []byte("+OK\r\n")
}

// list has a line for each connection, as CLIENT LIST of Redis.
func list(found idle.Inspection, err error) []byte {
	if err != nil {
		return failure(err)
	}
	var text strings.Builder
	for _, c := range found.Connections {
		fmt.Fprintf(&text, "id=%s addr=%v age=%d idle=%d omem=%d due=%d\n",
			c.ID, c.Remote, c.Age/time.Second, c.ReadIdle/time.Second, c.Output, c.Due/time.Second)
	}
	return bulk(text.String())
}

// withSeconds calls a function with an argument in seconds. A client may not ask for no timeout.
func withSeconds(arg string, set func(time.Duration) error) []byte {
	n, err := strconv.Atoi(arg)
	if err != nil || n < 1 || n > 3600 {
		return failure(errors.New("set a timeout from 1 to 3600 seconds"))
	}
	return done(set(time.Duration(n) * time.Second))
}
