package watch

import (
	"container/heap"
	"slices"
)

// First keeps the first values in an order, up to a limit. Create one with NewFirst. Not safe for
// concurrent use.
type First[T any] struct {
	limit int
	kept  worstFirst[T]
}

// NewFirst returns an empty First. The result of compare is negative if a comes before b.
func NewFirst[T any](limit int, compare func(a, b T) int) *First[T] {
	return &First[T]{limit: limit, kept: worstFirst[T]{compare: compare}}
}

// Admits reports whether Add would keep a value.
func (l *First[T]) Admits(x T) bool {
	return len(l.kept.all) < l.limit || l.limit > 0 && l.kept.compare(x, l.kept.all[0]) < 0
}

// Add keeps a value if it is one of the first. The last one of a full First is dropped then.
func (l *First[T]) Add(x T) {
	switch {
	case !l.Admits(x):
	case len(l.kept.all) < l.limit:
		heap.Push(&l.kept, x)
	default:
		l.kept.all[0] = x
		heap.Fix(&l.kept, 0)
	}
}

// Sorted returns the values in their order. The First must not be used further.
func (l *First[T]) Sorted() []T {
	slices.SortFunc(l.kept.all, l.kept.compare)
	return l.kept.all
}

// worstFirst is a heap with the last value at the top.
type worstFirst[T any] struct {
	compare func(a, b T) int
	all     []T
}

func (h *worstFirst[T]) Len() int           { return len(h.all) }
func (h *worstFirst[T]) Less(i, j int) bool { return h.compare(h.all[i], h.all[j]) > 0 }
func (h *worstFirst[T]) Swap(i, j int)      { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *worstFirst[T]) Push(x any)         { h.all = append(h.all, x.(T)) }
func (h *worstFirst[T]) Pop() any           { panic("BUG: watch: no value is popped") }
