#include "textflag.h"

// func prefetch(ids *[blockIDs]uint32, ahead *block, pieces unsafe.Pointer, size uintptr)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVD ids+0(FP), R0
	MOVD ahead+8(FP), R1
	MOVD pieces+16(FP), R2
	MOVD size+24(FP), R3
	PRFM (R1), PLDL1KEEP
	MOVD $15, R4         // blockIDs

next:
	MOVWU.P 4(R0), R5
	LSR     $1, R5       // pair
	LSR     $9, R5, R6   // slab
	AND     $511, R5     // pair of the slab
	MOVD    (R2)(R6<<3), R7
	MADD    R5, R7, R3, R8
	PRFM    (R8), PLDL1KEEP
	SUBS    $1, R4
	BNE     next
	RET
