#include "textflag.h"

// func prefetch(ids *[blockIDs]uint32, ahead *block, pieces unsafe.Pointer, size uintptr)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVQ ids+0(FP), SI
	MOVQ ahead+8(FP), AX
	MOVQ pieces+16(FP), DI
	MOVQ size+24(FP), R8
	PREFETCHT0 (AX)
	MOVQ $15, CX          // blockIDs

next:
	MOVL (SI), AX
	SHRL $1, AX           // pair
	MOVL AX, BX
	SHRL $9, BX           // slab
	ANDL $511, AX         // pair of the slab
	IMULQ R8, AX
	ADDQ (DI)(BX*8), AX
	PREFETCHT0 (AX)
	ADDQ $4, SI
	DECQ CX
	JNZ  next
	RET
