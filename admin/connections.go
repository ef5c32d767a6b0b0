package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/idle"
)

const (
	defaultShown = 20
	maxShown     = 1000
)

// A connection is an idle.ConnInfo as JSON has it.
type connection struct {
	ID        idle.ConnID    `json:"id"`
	Remote    string         `json:"remote"`
	State     idle.ConnState `json:"state"`
	Age       float64        `json:"age_seconds"`
	ReadIdle  float64        `json:"read_idle_seconds"`
	WriteIdle float64        `json:"write_idle_seconds"`
	Due       float64        `json:"due_seconds"`
	Received  uint64         `json:"received_bytes"`
	Sent      uint64         `json:"sent_bytes"`
	Output    int            `json:"output_bytes"`
	Missed    int            `json:"missed_heartbeats"`
}

func newConnections(all []idle.ConnInfo) []connection {
	shown := make([]connection, 0, len(all))
	for _, i := range all {
		shown = append(shown, connection{
			ID: i.ID, Remote: nameOf(i.Remote), State: i.State, Age: i.Age.Seconds(), ReadIdle: i.ReadIdle.Seconds(), WriteIdle: i.WriteIdle.Seconds(),
			Due: i.Due.Seconds(), Received: i.Received, Sent: i.Sent, Output: i.Output, Missed: i.Missed,
		})
	}
	return shown
}

// A closed is an idle.Closed as JSON has it.
type closed struct {
	At     time.Time   `json:"at"`
	Remote string      `json:"remote"`
	Reason idle.Reason `json:"reason"`
	Detail string      `json:"detail"`
	Age    float64     `json:"age_seconds"`
	Lasted float64     `json:"lasted_seconds"`
	Limit  float64     `json:"limit_seconds"`
	Late   float64     `json:"late_seconds"`
}

func newClosed(all []idle.Closed) []closed {
	shown := make([]closed, 0, len(all))
	for _, c := range all {
		shown = append(shown, closed{
			At: c.At.UTC(), Remote: nameOf(c.Remote), Reason: c.Err.Reason, Detail: strings.TrimPrefix(c.Err.Error(), "idle: connection reaped: "),
			Age: c.Age.Seconds(), Lasted: c.Err.Lasted.Seconds(), Limit: c.Err.Limit.Seconds(), Late: c.Err.Late.Seconds(),
		})
	}
	return shown
}

// nameOf returns an address, which a unix socket may not have.
func nameOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

func (h *Handler) serveConnections(w http.ResponseWriter, r *http.Request) {
	by, limit, ok := shownBy(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	found, err := h.reaper.Inspect(ctx, idle.Query{By: by, Limit: limit})
	if err != nil {
		failBusy(w, err)
		return
	}
	answer(w, map[string]any{
		"open": h.reaper.Connections(), "holding": h.reaper.Stats().Holding, "connections": newConnections(found.Connections),
	})
}

// shownBy reads which connections are asked for, and answers if that makes no sense.
func shownBy(w http.ResponseWriter, r *http.Request) (by idle.Order, limit int, ok bool) {
	by, limit = idle.LongestIdle, defaultShown
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, "the query cannot be read: %v", err)
		return by, limit, false
	}
	for name, values := range query {
		if len(values) > 1 {
			fail(w, http.StatusBadRequest, "%.40q is given %d times", name, len(values))
			return by, limit, false
		}
		value := values[0]
		switch name {
		case "sort":
			switch by = idle.Order(value); by {
			case idle.LongestIdle, idle.Oldest, idle.MostOutput:
			default:
				fail(w, http.StatusBadRequest, "sort is %.40q: take %s, %s or %s", value, idle.LongestIdle, idle.Oldest, idle.MostOutput)
				return by, limit, false
			}
		case "limit":
			if limit, err = strconv.Atoi(value); err != nil || limit < 1 || limit > maxShown {
				fail(w, http.StatusBadRequest, "limit is %.40q: take a number from 1 to %d", value, maxShown)
				return by, limit, false
			}
		default:
			fail(w, http.StatusBadRequest, "there is no %.40q: take sort and limit", name)
			return by, limit, false
		}
	}
	return by, limit, true
}

func (h *Handler) serveClosed(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"closed": newClosed(h.reaper.Closed())})
}

func (h *Handler) kick(w http.ResponseWriter, r *http.Request) {
	id, err := idle.ParseConnID(r.PathValue("id"))
	if err != nil {
		fail(w, http.StatusBadRequest, "%.60q is no connection: take an id of /api/connections, such as 1-23-456", r.PathValue("id"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	switch err := h.reaper.Kick(ctx, id); {
	case errors.Is(err, idle.ErrNotWatched):
		fail(w, http.StatusNotFound, "the connection %s is gone", id)
	case err != nil:
		failBusy(w, err)
	default:
		h.cfg.Logger.Info("connection kicked", "connection", id.String(), "by", r.RemoteAddr)
		w.WriteHeader(http.StatusNoContent)
	}
}
