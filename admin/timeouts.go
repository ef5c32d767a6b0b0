package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
)

// maxBody is the most that a request may bring, in bytes.
const maxBody = 4 << 10

func (h *Handler) serveConfig(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"server": h.cfg.Status().Settings, "limits": h.reaper.Limits(), "writable": h.cfg.Token != ""})
}

// changeTimeouts changes the timeouts in the request, and answers with all settings.
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

// apply changes the named timeouts. Other settings stay, even if another request changes them at
// the same time.
func (h *Handler) apply(changes map[string]time.Duration) error {
	if err := h.reaper.Adjust(changes); err != nil {
		return errors.New(configtable.Explain(err, ""))
	}
	return nil
}

// readTimeouts reads an object of durations.
func readTimeouts(body io.Reader) (map[string]time.Duration, error) {
	const example = `{"read-timeout":"30s"}`
	given, err := readObject(body)
	if err != nil {
		return nil, fmt.Errorf("the body cannot be read: %w: send an object such as %s", err, example)
	}
	if len(given) == 0 {
		return nil, fmt.Errorf("no timeout is named: send an object such as %s", example)
	}
	changes := map[string]time.Duration{}
	for name, raw := range given {
		var value string
		changes[name] = 0 // the Reaper refuses names that cannot be changed
		if json.Unmarshal(raw, &value) == nil {
			changes[name], err = time.ParseDuration(value)
		}
		if (value == "" || err != nil) && canChange(name) {
			return nil, fmt.Errorf("%s is %.40s: write a duration such as \"30s\" or \"5m\", or \"0s\" for none", name, raw)
		}
	}
	return changes, nil
}

// canChange reports whether a setting is a timeout that a request can change.
func canChange(name string) bool {
	return slices.Contains(slices.Concat(configtable.Idle.Adjustable(), configtable.Net.Adjustable()).Names(), name)
}

// readObject reads a JSON object. A name that is given twice is an error, because readers of the
// request may disagree on the value that counts.
func readObject(body io.Reader) (map[string]json.RawMessage, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil || all == nil {
		return nil, err
	}
	seen := map[string]bool{}
	members := json.NewDecoder(bytes.NewReader(text))
	for _, err = members.Token(); err == nil && members.More(); {
		var value json.RawMessage
		name, _ := members.Token()
		_ = members.Decode(&value) // Unmarshal has accepted all of it
		if seen[name.(string)] {
			return nil, fmt.Errorf("%.40q is given twice", name)
		}
		seen[name.(string)] = true
	}
	return all, err
}
