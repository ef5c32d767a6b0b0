package conntable

// An AddressTable finds the numbers of connections by the addresses of their values. A map by
// addresses would take 16 bytes more for each connection. Create one with NewAddressTable. Not safe
// for concurrent use.
type AddressTable struct {
	addressOf func(id uint32) uintptr
	short     map[uint32]uint32  // by 32 bits of the address: unique within 32 GiB
	rest      map[uintptr]uint32 // by the address, if its 32 bits were taken
}

// NewAddressTable returns an empty table. The function addressOf returns the address of a
// connection in it.
func NewAddressTable(addressOf func(id uint32) uintptr) AddressTable {
	return AddressTable{addressOf, make(map[uint32]uint32), make(map[uintptr]uint32)}
}

// shortOf returns 32 bits of an address. Values are aligned to 8 bytes.
func shortOf(addr uintptr) uint32 { return uint32(addr >> 3) }

// Find returns the number of the connection with an address.
func (t *AddressTable) Find(addr uintptr) (id uint32, ok bool) {
	if id, ok = t.short[shortOf(addr)]; ok && t.addressOf(id) == addr {
		return id, true
	}
	id, ok = t.rest[addr]
	return id, ok
}

// Add adds a connection.
func (t *AddressTable) Add(addr uintptr, id uint32) {
	if _, taken := t.short[shortOf(addr)]; taken {
		t.rest[addr] = id
		return
	}
	t.short[shortOf(addr)] = id
}

// Remove removes a connection.
func (t *AddressTable) Remove(addr uintptr, id uint32) {
	if short, ok := t.short[shortOf(addr)]; ok && short == id {
		delete(t.short, shortOf(addr))
		return
	}
	delete(t.rest, addr)
}

// Len returns the number of connections.
func (t *AddressTable) Len() int { return len(t.short) + len(t.rest) }
