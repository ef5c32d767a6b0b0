package conntable

import "github.com/idlewheel/idlewheel/internal/mono"

// ByDescriptor says that Key.FD is not used: Windows has no dense descriptors, and gnet needs two
// calls and an allocation to return the handle.
const ByDescriptor = false

// Max is how many connections a Table can hold.
const Max = 1 << 30

// A Table finds the Record of a connection by its address. The zero Table is empty. Not safe for
// concurrent use; the goroutine of its event loop owns it.
type Table struct {
	records map[uintptr]*entry
}

type entry struct {
	Record
	id uint32
}

// AtHome returns the Record of no connection: the map has to be asked.
func (t *Table) AtHome(uint) *Record { return &absent }

// Find returns the Record of a connection and its number. The Record is nil if the connection is
// not in the table.
func (t *Table) Find(k Key) (r *Record, id uint32) {
	if e := t.records[k.Addr]; e != nil {
		return &e.Record, e.id
	}
	return nil, 0
}

// FindDescriptor is Find.
func (t *Table) FindDescriptor(k Key) (r *Record, id uint32) { return t.Find(k) }

// Insert adds a Record with the flag Fresh for a connection. It replaces none: no two connections
// have the same address.
func (t *Table) Insert(k Key, id uint32, heard mono.ShortStamp) (old uint32, replaced bool) {
	if t.records == nil {
		t.records = make(map[uintptr]*entry)
	}
	t.records[k.Addr] = &entry{Record{Heard: heard, Tag: TagOf(k.Addr) | Fresh}, id}
	return 0, false
}

// Scan calls do for all records.
func (t *Table) Scan(_, _ int, do func(id uint32, r Record)) (next int) {
	for _, e := range t.records {
		do(e.id, e.Record)
	}
	return 0
}

// ScanPart is Scan.
func (t *Table) ScanPart(from, n int, do func(id uint32, r Record)) (next int) {
	return t.Scan(from, n, do)
}

// Remove takes the Record of a connection out, if there is one.
func (t *Table) Remove(k Key) {
	if e := t.records[k.Addr]; e != nil {
		e.Record = Record{}
		delete(t.records, k.Addr)
	}
}
