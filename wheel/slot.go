package wheel

// blockIDs makes a block 64 bytes, one cache line: emptying a slot misses the cache once per 15
// entries.
const blockIDs = 15

// A block is one link of a list of ids or other values. Block 0 is never used, so that 0 means
// none.
type block[E any] struct {
	next uint32
	ids  [blockIDs]E // filled from the end
}

// blockPiece is the number of blocks that are allocated at a time.
const blockPiece = 1 << 6 // power of two

// A list is a stack in blocks. All blocks but the head are full. The zero list is empty.
type list struct {
	head uint32 // block
	room uint32 // places left in the head block; the id on top is at this index
}

func (l list) empty() bool { return l.head == 0 }

// blocks owns the memory of all lists of a wheel.
type blocks[E any] struct {
	pieces []*[blockPiece]block[E]
	used   uint32 // blocks allocated so far, including block 0
	free   uint32 // first unused block; the others are linked by next
}

func (b *blocks[E]) at(i uint32) *block[E] { return &b.pieces[i/blockPiece][i%blockPiece] }

// take returns an unused block.
func (b *blocks[E]) take() uint32 {
	if b.free != 0 {
		i := b.free
		b.free = b.at(i).next
		return i
	}
	if b.used%blockPiece == 0 {
		b.pieces = append(b.pieces, new([blockPiece]block[E]))
	}
	i := b.used
	b.used++
	if i == 0 {
		return b.take()
	}
	return i
}

// extend puts an empty block on top of a list that has no room.
func (b *blocks[E]) extend(l *list) {
	i := b.take()
	b.at(i).next = l.head
	*l = list{head: i, room: blockIDs}
}

func (b *blocks[E]) push(l *list, id E) {
	if l.room == 0 {
		b.extend(l)
	}
	b.put(l, id)
}

// put pushes an id onto a list that has room.
func (b *blocks[E]) put(l *list, id E) {
	l.room--
	b.at(l.head).ids[l.room] = id
}

// pop removes the id that was pushed last, and clears its place. The list must not be empty.
func (b *blocks[E]) pop(l *list) (id E) {
	var none E
	top := &b.at(l.head).ids[l.room]
	id, *top = *top, none
	if l.room++; l.room == blockIDs {
		b.shrink(l)
	}
	return id
}

// count returns the number of ids in a list.
func (b *blocks[E]) count(l list) (n int) {
	for i := l.head; i != 0; i = b.at(i).next {
		n += blockIDs
	}
	return n - int(l.room)
}

// shrink removes the head block, which is empty, from a list.
func (b *blocks[E]) shrink(l *list) {
	i := l.head
	head := b.at(i)
	*l = list{head: head.next}
	head.next, b.free = b.free, i
}
