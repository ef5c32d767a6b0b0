package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/idlewheel/idlewheel/reap"
)

// Numbers of connections in an answer of /api/connections.
const (
	defaultListed = 20
	maxListed     = 1000
)

func (h *Handler) serveConnections(w http.ResponseWriter, r *http.Request) {
	by, limit, err := parseListing(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), loopTimeout)
	defer cancel()
	list, err := h.inspector.connections(ctx, by, limit)
	if err != nil {
		failInspect(w, err)
		return
	}
	s := h.reaper.Stats()
	answer(w, map[string]any{
		"open": h.inspector.open(), "suspended": s.Suspended, "suspended_for": showSuspensions(s.SuspendedFor), "connections": list,
	})
}

// parseListing reads the query of /api/connections: the order and the number of connections.
func parseListing(query string) (by string, limit int, err error) {
	by, limit = "idle", defaultListed
	params, err := url.ParseQuery(query)
	if err != nil {
		return by, limit, fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, values := range params {
		if len(values) > 1 {
			return by, limit, fmt.Errorf("%.40q is given %d times", name, len(values))
		}
		switch name {
		case "sort":
			by, err = parseOrder(values[0])
		case "limit":
			limit, err = parseNumber(name, values[0], maxListed)
		default:
			err = fmt.Errorf("%.40q is not a parameter: use sort and limit", name)
		}
		if err != nil {
			return by, limit, err
		}
	}
	return by, limit, nil
}

func parseOrder(text string) (string, error) {
	switch text {
	case "idle", "age", "output":
		return text, nil
	}
	return "", fmt.Errorf("sort is %.40q: use idle, age or output", text)
}

// parseNumber reads the parameter name, a number from 1 to most.
func parseNumber(name, text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is %.40q: use a number from 1 to %d", name, text, most)
	}
	return n, nil
}

func (h *Handler) serveClosed(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"closed": h.inspector.closed()})
}

func (h *Handler) kick(w http.ResponseWriter, r *http.Request) {
	id := reap.ConnID(r.PathValue("id"))
	ctx, cancel := context.WithTimeout(r.Context(), loopTimeout)
	defer cancel()
	switch err := h.reaper.Kick(ctx, id); {
	case errors.Is(err, reap.ErrBadConnID):
		fail(w, http.StatusBadRequest, "%.60q is not the ID of a connection: use one of /api/connections, such as 1-23-456", id)
	case errors.Is(err, reap.ErrNotWatched):
		fail(w, http.StatusNotFound, "the connection %s is gone", id)
	case err != nil:
		failInspect(w, err)
	default:
		h.cfg.Logger.Info("connection kicked", "connection", id, "by", r.RemoteAddr)
		w.WriteHeader(http.StatusNoContent)
	}
}
