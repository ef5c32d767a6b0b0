package settings

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
)

// readTimeout bounds the read of a file.
const readTimeout = 5 * time.Second

// bounded returns the result of read, or an error when ctx is done or the time is up. On a network
// file system that does not answer, a read may never end, and cannot be interrupted. The goroutine
// that reads ends with the read.
func bounded[T any](ctx context.Context, file string, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("settings: reading %s takes longer than %v", file, readTimeout))
	defer cancel()
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// readFile sets the settings that are in a file. Only those of the table may be in it. cfg is a
// pointer to a Config.
func readFile(file string, table configtable.Table, cfg any) error {
	in, err := openRegular(file)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	defer in.Close()
	values := map[string]*configtable.Value{}
	for _, row := range table {
		values[row.Name] = row.Value(cfg)
	}
	first := map[string]int{} // the line of each setting
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		v, ok := values[words[0]]
		if !ok || len(words) != 2 {
			return fmt.Errorf(`settings: %s, line %d: %.80q is not a limit and its value, such as "read-timeout 30s"`, file, n, lines.Text())
		}
		if at := first[words[0]]; at > 0 {
			return fmt.Errorf("settings: %s, line %d: %s is set twice, first in line %d", file, n, words[0], at)
		}
		first[words[0]] = n
		if err := v.Set(words[1]); err != nil {
			return fmt.Errorf("settings: %s, line %d: %s: %w", file, n, words[0], err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("settings: %s: %w", file, err)
	}
	return nil
}

// openRegular opens a regular file. It returns an error for a FIFO, a device or a directory, and
// does not wait for a writer of a FIFO.
func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // replaced after the first Stat
		err = notRegular(name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func notRegular(name string) error { return fmt.Errorf("%s is not a regular file", name) }

// ReadToken reads the token of the admin listener from a file, without white space at its ends. It
// returns "" if the name of the file is empty, and an error if the file holds no token, or if the
// read takes longer than 5 seconds. The file may be a FIFO. The admin listener checks the token
// itself. The file is read once: a new token needs a restart.
func ReadToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return bounded(context.Background(), file, func() (string, error) { return readToken(file) })
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("settings: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("settings: %s is empty: write at least 16 characters, for example with openssl rand -hex 32", file)
	}
	return token, nil
}
