package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
)

// A record has all results of one run of the program. The tables are made from it alone.
type record struct {
	Machine  machine           `json:"machine"`
	Command  string            `json:"command"`
	Quick    bool              `json:"quick"`
	Rounds   int               `json:"rounds"`
	Versions map[string]string `json:"versions"` // by subject
	Absent   map[string]string `json:"absent"`   // by subject: the reason why it could not run
	Series   []*series         `json:"series"`
}

// A series has the results of all rounds for one work with one subject at one size.
type series struct {
	Work    string    `json:"work"`
	Subject string    `json:"subject"`
	N       int       `json:"n"`
	Runs    []metrics `json:"runs"`
	Failure string    `json:"failure,omitempty"` // the reason for missing runs
}

func (r *record) find(work, subject string, n int) *series {
	i := slices.IndexFunc(r.Series, func(s *series) bool { return s.Work == work && s.Subject == subject && s.N == n })
	if i < 0 {
		return nil
	}
	return r.Series[i]
}

// keepRounds drops the runs after the given number of rounds.
func (r *record) keepRounds(n int) {
	r.Rounds = n
	for _, s := range r.Series {
		s.Runs = s.Runs[:min(len(s.Runs), n)]
	}
}

// sizes returns the sizes at which a work was done, in order.
func (r *record) sizes(work string) []int {
	var list []int
	for _, s := range r.Series {
		if s.Work == work && !slices.Contains(list, s.N) {
			list = append(list, s.N)
		}
	}
	slices.Sort(list)
	return list
}

// A summary is the median of some values with their extremes. Without values all three are NaN.
type summary struct{ median, low, high float64 }

func summarize(values []float64) summary {
	if len(values) == 0 {
		return summary{math.NaN(), math.NaN(), math.NaN()}
	}
	v := slices.Sorted(slices.Values(values))
	middle := v[len(v)/2]
	if len(v)%2 == 0 {
		middle = (v[len(v)/2-1] + middle) / 2
	}
	return summary{middle, v[0], v[len(v)-1]}
}

func (s summary) exists() bool { return !math.IsNaN(s.median) }

// summary returns the summary of one metric over the rounds.
func (s *series) summary(metric string) summary {
	if s == nil {
		return summarize(nil)
	}
	var values []float64
	for _, m := range s.Runs {
		if v, ok := m[metric]; ok {
			values = append(values, v)
		}
	}
	return summarize(values)
}

// less subtracts the cost of the harness. The rest may be noise around zero.
func (s summary) less(harness summary) summary {
	return summary{s.median - harness.median, s.low - harness.median, s.high - harness.median}
}

func readRecord(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

func (r *record) write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
