package idle

import (
	"reflect"
	"sync"
	"unsafe"
)

// isFree reports whether a mutex is not held. The simulation has one goroutine: if the mutex is
// held, a call that needs it would wait for ever.
func isFree(mu *sync.Mutex) bool {
	free := mu.TryLock()
	if free {
		mu.Unlock()
	}
	return free
}

// watcherMutex returns the mutex of the Watcher of a Reaper.
func watcherMutex(r *Reaper) *sync.Mutex {
	return (*sync.Mutex)(unsafe.Pointer(reflect.ValueOf(&r.watch).Elem().FieldByName("mu").UnsafeAddr()))
}
