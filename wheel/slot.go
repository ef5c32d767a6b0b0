package wheel

// blockIDs makes a block 64 bytes, one cache line: emptying a slot misses the cache once per 15 entries.
const blockIDs = 15

// A block is one link of a list of ids. Block 0 is never used, so that 0 means none.
type block struct {
	next uint32
	ids  [blockIDs]uint32
}

// blockPiece is how many blocks are allocated at a time.
const blockPiece = 1 << 6 // power of two

// A list is a stack of ids in blocks. All blocks but the head are full. The zero list is empty.
type list struct {
	head uint32 // block
	n    uint32 // ids in the head block
}

func (l list) empty() bool { return l.head == 0 }

// blocks owns the memory of all lists of a wheel.
type blocks struct {
	pieces []*[blockPiece]block
	used   uint32 // blocks ever handed out, block 0 included
	free   uint32 // first of the unused ones, linked by next
}

func (b *blocks) at(i uint32) *block { return &b.pieces[i/blockPiece][i%blockPiece] }

// take returns an unused block.
func (b *blocks) take() uint32 {
	if b.free != 0 {
		i := b.free
		b.free = b.at(i).next
		return i
	}
	if b.used%blockPiece == 0 {
		b.pieces = append(b.pieces, new([blockPiece]block))
	}
	i := b.used
	b.used++
	if i == 0 {
		return b.take()
	}
	return i
}

func (b *blocks) push(l *list, id uint32) {
	if l.head == 0 || l.n == blockIDs {
		i := b.take()
		b.at(i).next = l.head
		*l = list{head: i}
	}
	b.at(l.head).ids[l.n] = id
	l.n++
}

// top returns the id that pop would return. The list must not be empty.
func (b *blocks) top(l *list) uint32 { return b.at(l.head).ids[l.n-1] }

// pop takes the id that was pushed last. The list must not be empty.
func (b *blocks) pop(l *list) uint32 {
	head := b.at(l.head)
	l.n--
	id := head.ids[l.n]
	if l.n == 0 {
		emptied := l.head
		*l = list{head: head.next}
		if l.head != 0 {
			l.n = blockIDs
		}
		head.next, b.free = b.free, emptied
	}
	return id
}
