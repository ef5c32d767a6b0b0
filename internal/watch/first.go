package watch

import "slices"

// First keeps the first values in an order, up to a limit. Create one with NewFirst. Not safe for
// concurrent use.
type First[T any] struct {
	limit   int
	compare func(a, b T) int
	kept    []T // up to twice the limit; the first of them are sorted after each cut
	sorted  int
}

// NewFirst returns an empty First. The result of compare is negative if a comes before b.
func NewFirst[T any](limit int, compare func(a, b T) int) *First[T] {
	return &First[T]{limit: limit, compare: compare}
}

// Admits reports whether Add may keep a value.
func (f *First[T]) Admits(x T) bool {
	return f.limit > 0 && (f.sorted < f.limit || f.compare(x, f.kept[f.limit-1]) < 0)
}

// Add keeps a value if it is one of the first. For one that Admits refuses it costs more.
func (f *First[T]) Add(x T) {
	if f.kept = append(f.kept, x); len(f.kept)-f.limit >= f.limit {
		f.kept = f.Sorted()
		f.sorted = len(f.kept)
	}
}

// Sorted returns the values in their order.
func (f *First[T]) Sorted() []T {
	slices.SortFunc(f.kept, f.compare)
	return f.kept[:min(len(f.kept), f.limit)]
}
