package settings

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/setting"
)

// readFile sets the settings that are in the file.
func (s *Source) readFile(cfg *idle.Config) error {
	in, err := openRegular(s.File)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	defer in.Close()
	values := map[string]*setting.Value{}
	for row := range s.rows() {
		values[row.Name] = row.Value(cfg)
	}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		v, ok := values[words[0]]
		if !ok || len(words) != 2 {
			return fmt.Errorf(`settings: %s, line %d: %.80q is not a limit and its value, such as "read-timeout 30s"`,
				s.File, n, lines.Text())
		}
		if err := v.Set(words[1]); err != nil {
			return fmt.Errorf("settings: %s, line %d: %s: %w", s.File, n, words[0], err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("settings: %s: %w", s.File, err)
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
// returns "" if the name of the file is empty, and an error if the file holds no token. The admin
// listener checks the token itself. The file is read once: a new token needs a restart.
func ReadToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
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
