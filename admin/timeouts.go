package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/idle"
)

// maxBody is the most that a request may bring, in bytes.
const maxBody = 4 << 10

// A timeout is one that can be changed.
type timeout struct {
	name, field string // the field is what errors of package idle speak of
	of          func(*idle.Config) *time.Duration
}

// timeouts are all of them. A field name with another one as its prefix comes before that one.
var timeouts = []timeout{
	{"read-timeout", "Config.ReadTimeout", func(c *idle.Config) *time.Duration { return &c.ReadTimeout }},
	{"write-timeout", "Config.WriteTimeout", func(c *idle.Config) *time.Duration { return &c.WriteTimeout }},
	{"all-timeout", "Config.AllTimeout", func(c *idle.Config) *time.Duration { return &c.AllTimeout }},
	{"first-byte-timeout", "Config.FirstByteTimeout", func(c *idle.Config) *time.Duration { return &c.FirstByteTimeout }},
	{"handshake-timeout", "Config.HandshakeTimeout", func(c *idle.Config) *time.Duration { return &c.HandshakeTimeout }},
	{"write-stall-timeout", "Config.WriteStallTimeout", func(c *idle.Config) *time.Duration { return &c.WriteStallTimeout }},
	{"max-age-grace", "Config.MaxAgeGrace", func(c *idle.Config) *time.Duration { return &c.MaxAgeGrace }},
	{"outage-grace", "Config.OutageGrace", func(c *idle.Config) *time.Duration { return &c.OutageGrace }},
	{"max-age", "Config.MaxAge", func(c *idle.Config) *time.Duration { return &c.MaxAge }},
}

// limits returns the settings of a Config as JSON has them: durations as Go writes them.
func limits(cfg idle.Config) map[string]any {
	all := map[string]any{}
	maps.Insert(all, cfg.All())
	for name, value := range all {
		if d, ok := value.(time.Duration); ok {
			all[name] = d.String()
		}
	}
	return all
}

func (h *Handler) serveConfig(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"server": h.cfg.Status().Settings, "limits": limits(h.reaper.Config()), "writable": h.cfg.Token != ""})
}

// changeTimeouts changes those that are named, and answers with all settings.
func (h *Handler) changeTimeouts(w http.ResponseWriter, r *http.Request) {
	changes, err := readTimeouts(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	if err := h.apply(changes); err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	h.cfg.Logger.Info("timeouts changed", "changes", fmt.Sprint(changes), "by", r.RemoteAddr)
	h.serveConfig(w, r)
}

// apply changes what is named, and nothing else, whatever others change at the same time.
func (h *Handler) apply(changes map[string]time.Duration) error {
	words := []string{": set a tenth of the timeout, or 0 for the default", ": set at least as much", "Config.Tick", "tick", "\n", "; ", "idle: ", ""}
	for _, t := range timeouts {
		words = append(words, t.field, t.name)
	}
	err := h.reaper.Update(func(cfg *idle.Config) {
		for _, t := range timeouts {
			if d, ok := changes[t.name]; ok {
				*t.of(cfg) = d
			}
		}
	})
	if err != nil {
		return errors.New(strings.NewReplacer(words...).Replace(err.Error()))
	}
	return nil
}

// readTimeouts reads an object of durations.
func readTimeouts(body io.Reader) (map[string]time.Duration, error) {
	const example = `{"read-timeout":"30s"}`
	text, err := io.ReadAll(body)
	var given map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &given)
	}
	if err != nil {
		return nil, fmt.Errorf("the body cannot be read: %w: send an object such as %s", err, example)
	}
	if len(given) == 0 {
		return nil, fmt.Errorf("no timeout is named: send an object such as %s", example)
	}
	changes := map[string]time.Duration{}
	for name, raw := range given {
		if !slices.ContainsFunc(timeouts, func(t timeout) bool { return t.name == name }) {
			return nil, fmt.Errorf("%.40q cannot be changed here: take %s", name, strings.Join(timeoutNames(), ", "))
		}
		var value string
		if json.Unmarshal(raw, &value) == nil {
			changes[name], err = time.ParseDuration(value)
		}
		if value == "" || err != nil {
			return nil, fmt.Errorf("%s is %.40s: write a duration such as \"30s\" or \"5m\", or \"0s\" for none", name, raw)
		}
	}
	return changes, nil
}

func timeoutNames() (names []string) {
	for _, t := range timeouts {
		names = append(names, t.name)
	}
	return names
}
