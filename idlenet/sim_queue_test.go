package idlenet

import "time"

// A simEvent is a function that runs at an instant of virtual time.
type simEvent struct {
	at  time.Duration
	seq uint64 // orders events of the same instant by when they were planned
	do  func()
}

func (e *simEvent) before(o *simEvent) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// A simQueue is a heap of events.
type simQueue struct{ all []simEvent }

func (q *simQueue) push(e simEvent) {
	q.all = append(q.all, e)
	i := len(q.all) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.all[i].before(&q.all[parent]) {
			break
		}
		q.all[i], q.all[parent] = q.all[parent], q.all[i]
		i = parent
	}
}

// next returns the instant of the first event.
func (q *simQueue) next() (at time.Duration, ok bool) {
	if len(q.all) == 0 {
		return 0, false
	}
	return q.all[0].at, true
}

func (q *simQueue) pop() simEvent {
	first, last := q.all[0], len(q.all)-1
	q.all[0] = q.all[last]
	q.all[last] = simEvent{}
	q.all = q.all[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.all[child].before(&q.all[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		q.all[i], q.all[least] = q.all[least], q.all[i]
		i = least
	}
}
