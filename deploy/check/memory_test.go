package check

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// A memory is a storage for PromQL with series that begin at time 0.
type memory []promql.Series

// add adds a series in the notation of promtool, such as `up{job="a"} 1x4 0x3`.
func (m *memory) add(text string, interval time.Duration) error {
	metric, values, err := parser.ParseSeriesDesc(text)
	if err != nil {
		return err
	}
	series := promql.Series{Metric: metric}
	for i, v := range values {
		if !v.Omitted {
			series.Floats = append(series.Floats, promql.FPoint{T: int64(i) * interval.Milliseconds(), F: v.Value})
		}
	}
	*m = append(*m, series)
	return nil
}

// Querier implements storage.Queryable.
func (m memory) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := &seriesSet{next: -1}
			for _, series := range m {
				if !slices.ContainsFunc(matchers, func(l *labels.Matcher) bool { return !l.Matches(series.Metric.Get(l.Name)) }) {
					found.series = append(found.series, series)
				}
			}
			return found
		},
	}, nil
}

// A seriesSet iterates over series.
type seriesSet struct {
	series []promql.Series
	next   int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next < len(s.series) }
func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(s.series[s.next]) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

var _ storage.Queryable = memory(nil)
