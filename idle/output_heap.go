package idle

import "container/heap"

// An outputHeap holds the bytes that wait for each connection, by the number of the connection. The
// zero outputHeap is empty. Not safe for concurrent use.
type outputHeap struct {
	sum  int
	heap largestFirst
}

// set records the bytes that wait for a connection, and returns by how many the sum has grown.
func (s *outputHeap) set(id uint32, bytes int) (grown int) {
	i, known := s.heap.at[id]
	switch {
	case known:
		grown = bytes - s.heap.all[i].bytes
		s.heap.all[i].bytes = bytes
		if bytes == 0 {
			heap.Remove(&s.heap, i)
		} else if grown != 0 {
			heap.Fix(&s.heap, i)
		}
	case bytes > 0:
		grown = bytes
		heap.Push(&s.heap, output{id, bytes})
	}
	s.sum += grown
	return grown
}

// has reports whether output waits for a connection.
func (s *outputHeap) has(id uint32) bool {
	_, ok := s.heap.at[id]
	return ok
}

// largest returns the connection with the most output, and its bytes; 0 bytes if there is none.
func (s *outputHeap) largest() (id uint32, bytes int) {
	if len(s.heap.all) == 0 {
		return 0, 0
	}
	return s.heap.all[0].id, s.heap.all[0].bytes
}

// total returns the bytes that wait for all connections.
func (s *outputHeap) total() int { return s.sum }

// count returns the number of connections with output.
func (s *outputHeap) count() int { return len(s.heap.all) }

type output struct {
	id    uint32
	bytes int
}

// largestFirst is a heap with the largest output at the top.
type largestFirst struct {
	all []output
	at  map[uint32]int // the index in all of each connection
}

func (h *largestFirst) Len() int           { return len(h.all) }
func (h *largestFirst) Less(i, j int) bool { return h.all[i].bytes > h.all[j].bytes }

func (h *largestFirst) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.at[h.all[i].id], h.at[h.all[j].id] = i, j
}

func (h *largestFirst) Push(x any) {
	if h.at == nil {
		h.at = make(map[uint32]int)
	}
	o := x.(output)
	h.at[o.id] = len(h.all)
	h.all = append(h.all, o)
}

func (h *largestFirst) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	delete(h.at, last.id)
	if len(h.all) == 0 { // many connections may have had output once
		h.all, h.at = nil, nil
	}
	return last
}
