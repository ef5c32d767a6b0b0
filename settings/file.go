package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
)

// readTimeout bounds the read of a file.
const readTimeout = 5 * time.Second

// maxFile and maxToken are the largest numbers of bytes in a file of limits and of a token.
const (
	maxFile  = 1 << 20
	maxToken = 1 << 12
)

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

// readFile sets the settings that are in a file. Only those of the table may be in it, and each
// line must end, the last one too: a file that is being written is refused. cfg is a pointer to a
// Config.
func readFile(file string, table configtable.Table, cfg any) error {
	in, err := openRegular(file)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	defer in.Close()
	text, err := readAtMost(in, maxFile)
	if err != nil {
		return fmt.Errorf("settings: %s: %w", file, err)
	}
	if text == "" {
		return fmt.Errorf("settings: %s is empty: write a comment, which begins with #, if it is to set nothing", file)
	}
	first := map[string]int{} // the line of each setting
	n := 0
	for line := range strings.Lines(text) {
		n++
		if !strings.HasSuffix(line, "\n") { // an editor ends it, a writer that was stopped does not
			return fmt.Errorf("settings: %s, line %d has no end: the file is not complete", file, n)
		}
		if err := readLine(line, n, table, cfg, first); err != nil {
			return fmt.Errorf("settings: %s, line %d: %w", file, n, err)
		}
	}
	return nil
}

// readLine sets the value in a line. first has the line of each setting that is set already.
func readLine(line string, n int, table configtable.Table, cfg any, first map[string]int) error {
	setting, _, _ := strings.Cut(line, "#")
	words := strings.Fields(setting)
	if len(words) == 0 {
		return nil
	}
	i := slices.Index(table.Names(), words[0])
	switch {
	case i < 0:
		return unknown(words[0], table.Names())
	case len(words) != 2:
		return fmt.Errorf(`%.80q is not a setting and its value, such as "read-timeout 30s"`, strings.TrimSpace(line))
	}
	if at := first[words[0]]; at > 0 {
		return fmt.Errorf("%s is set twice, first in line %d", words[0], at)
	}
	first[words[0]] = n
	row := table[i]
	if err := row.Value(cfg).Set(words[1]); err != nil {
		return fmt.Errorf("%s: %w", row.Name, err)
	}
	if mistake := row.Mistake(row.Of(cfg)); mistake != "" {
		return fmt.Errorf("%s is %s: %s", row.Name, words[1], mistake)
	}
	return nil
}

// unknown returns the error about a name that is not one of those that the file may have.
func unknown(name string, names []string) error {
	if slices.Contains(slices.Concat(configtable.Idle, configtable.Net, configtable.Server).Names(), name) {
		return fmt.Errorf("%s cannot be set in this file: take it out", name)
	}
	best, least := "", 0.75
	for _, known := range names {
		if like := likeness(letters(name), letters(known)); like >= least {
			best, least = known, like
		}
	}
	if best != "" {
		return fmt.Errorf("the file has no setting %q: did you mean %s?", name, best)
	}
	return fmt.Errorf(`the file has no setting %.80q: write a setting and its value, such as "read-timeout 30s"`, name)
}

// letters returns a name in a form that is the same for read-timeout, --read_timeout and
// ReadTimeout.
func letters(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// likeness returns the part of the longer name that both names begin and end with.
func likeness(a, b string) float64 {
	shorter, longer := min(len(a), len(b)), max(len(a), len(b))
	first, last := 0, 0
	for first < shorter && a[first] == b[first] {
		first++
	}
	for last < shorter-first && a[len(a)-1-last] == b[len(b)-1-last] {
		last++
	}
	return float64(first+last) / float64(longer)
}

// readAtMost returns what is to be read, and an error if there is more than a number of bytes.
func readAtMost(in io.Reader, most int64) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return string(text), err
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
// returns "" if the name of the file is empty, and an error if the file holds no token or more than
// 4,096 bytes, or if the read takes longer than 5 seconds. The file may be a FIFO. The admin
// listener checks the token itself. The file is read once: a new token needs a restart.
func ReadToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return bounded(context.Background(), file, func() (string, error) { return readToken(file) })
}

func readToken(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("settings: %w", err)
	}
	defer in.Close()
	text, err := readAtMost(in, maxToken)
	if err != nil {
		return "", fmt.Errorf("settings: %s: %w", file, err)
	}
	token := strings.TrimSpace(text)
	if token == "" {
		return "", fmt.Errorf("settings: %s is empty: write at least 16 characters, for example with openssl rand -hex 32", file)
	}
	return token, nil
}
