package idle

import "container/heap"

// An outputHeap holds the bytes that wait for each connection, by the number of the connection, the
// most at the top. The zero outputHeap is empty. Not safe for concurrent use.
type outputHeap struct {
	sum int // bytes of all connections
	all []output
	at  map[uint32]int // the index in all of each connection
}

type output struct {
	id    uint32
	bytes int
}

// set records the bytes that wait for a connection, and returns by how many the sum has grown.
func (h *outputHeap) set(id uint32, bytes int) (grown int) {
	i, known := h.at[id]
	switch {
	case known:
		grown = bytes - h.all[i].bytes
		h.all[i].bytes = bytes
		if bytes == 0 {
			heap.Remove(h, i)
		} else {
			heap.Fix(h, i)
		}
	case bytes > 0:
		grown = bytes
		heap.Push(h, output{id, bytes})
	}
	h.sum += grown
	return grown
}

func (h *outputHeap) has(id uint32) bool {
	_, ok := h.at[id]
	return ok
}

// largest returns the connection with the most output, and its bytes; 0 bytes if there is none.
func (h *outputHeap) largest() (id uint32, bytes int) {
	if len(h.all) == 0 {
		return 0, 0
	}
	return h.all[0].id, h.all[0].bytes
}

// Len, Less, Swap, Push and Pop are for package heap.

func (h *outputHeap) Len() int           { return len(h.all) }
func (h *outputHeap) Less(i, j int) bool { return h.all[i].bytes > h.all[j].bytes }

func (h *outputHeap) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.at[h.all[i].id], h.at[h.all[j].id] = i, j
}

func (h *outputHeap) Push(x any) {
	if h.at == nil {
		h.at = make(map[uint32]int)
	}
	o := x.(output)
	h.at[o.id] = len(h.all)
	h.all = append(h.all, o)
}

func (h *outputHeap) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	delete(h.at, last.id)
	if len(h.all) == 0 { // many connections may have had output once
		h.all, h.at = nil, nil
	}
	return nil // it is not used
}
