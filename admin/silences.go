package admin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// curveSteps is the number of timeouts in the curve up to the present one, and beyond it.
const curveSteps = 16

// silences says what other timeouts would have done, or half and three quarters of the present one.
// The curve has seconds of timeouts, and the connections cut.
func (i inspector) silences(ctx context.Context, others ...time.Duration) (map[string]any, error) {
	found, err := i.reaper.Inspect(ctx, reap.Query{Silences: true})
	if err != nil {
		return nil, err
	}
	s, text, curve := &found.Silences, []string{}, [][2]float64{}
	if others == nil && s.Timeout > 0 {
		others = []time.Duration{s.Timeout / 2, s.Timeout * 3 / 4}
	}
	for _, timeout := range others {
		text = append(text, s.Text(timeout))
	}
	for n := range time.Duration(2 * curveSteps) {
		timeout := s.Timeout * (n + 1) / curveSteps
		if cut, _, known := s.Try(timeout); known {
			curve = append(curve, [2]float64{timeout.Seconds(), float64(cut)})
		}
	}
	return map[string]any{
		"window_seconds": s.Window.Seconds(), "timeout_seconds": s.Timeout.Seconds(), "connections": s.Connections,
		"sampled": s.Sampled, "text": text, "curve": curve,
	}, nil
}

func (h *Handler) serveSilences(w http.ResponseWriter, r *http.Request) {
	var others []time.Duration
	if given := r.URL.RawQuery; given != "" {
		text, named := strings.CutPrefix(given, "timeout=")
		d, err := time.ParseDuration(text)
		if !named || err != nil || d <= 0 {
			fail(w, http.StatusBadRequest, "the query is %.40q: send one duration, such as timeout=40s", given)
			return
		}
		others = []time.Duration{d}
	}
	ctx, cancel := context.WithTimeout(r.Context(), loopTimeout)
	defer cancel()
	all, err := h.inspector.silences(ctx, others...)
	if err != nil {
		failInspect(w, err)
		return
	}
	answer(w, all)
}
