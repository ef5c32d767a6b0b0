package idlenet

// An idTable finds the ids of the connections of a shard by the addresses of their sockets. A map
// by addresses would take 16 bytes more for each connection.
type idTable struct {
	short map[uint32]uint32  // by 32 bits of the address: unique within 32 GiB
	rest  map[uintptr]uint32 // by the address, if its 32 bits were taken
}

func newIDTable() idTable {
	return idTable{short: make(map[uint32]uint32), rest: make(map[uintptr]uint32)}
}

// shortOf returns 32 bits of an address. Sockets are aligned to 8 bytes.
func shortOf(addr uintptr) uint32 { return uint32(addr >> 3) }

// find returns the id of the connection of a socket with an address.
func (t *idTable) find(addr uintptr, s *shard) (id uint32, ok bool) {
	if id, ok = t.short[shortOf(addr)]; ok && s.addressOf(id) == addr {
		return id, true
	}
	id, ok = t.rest[addr]
	return id, ok
}

// add adds a connection. The address is that of its socket.
func (t *idTable) add(addr uintptr, id uint32) {
	if _, taken := t.short[shortOf(addr)]; taken {
		t.rest[addr] = id
		return
	}
	t.short[shortOf(addr)] = id
}

// remove removes a connection.
func (t *idTable) remove(addr uintptr, id uint32) {
	if short, ok := t.short[shortOf(addr)]; ok && short == id {
		delete(t.short, shortOf(addr))
		return
	}
	delete(t.rest, addr)
}

// addressOf returns the address of the socket of a connection.
func (s *shard) addressOf(id uint32) uintptr {
	own, _ := root(s.At(id).Front.conn)
	return address(own)
}

// len returns the number of connections.
func (t *idTable) len() int { return len(t.short) + len(t.rest) }
