package load

// An entry is the next action of a connection.
type entry struct {
	at    int64
	index int32
}

// A schedule is a binary heap of entries, the earliest first. It may hold stale entries, which
// Loop.runDue skips.
type schedule []entry

func (s *schedule) push(e entry) {
	*s = append(*s, e)
	h := *s
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= e.at {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// pop removes the earliest entry if it is due.
func (s *schedule) pop(now int64) (entry, bool) {
	h := *s
	if len(h) == 0 || h[0].at > now {
		return entry{}, false
	}
	first := h[0]
	last := h[len(h)-1]
	h = h[:len(h)-1]
	*s = h
	for i := 0; len(h) > 0; {
		child := 2*i + 1
		if child < len(h)-1 && h[child+1].at < h[child].at {
			child++
		}
		if child >= len(h) || last.at <= h[child].at {
			h[i] = last
			break
		}
		h[i] = h[child]
		i = child
	}
	return first, true
}
