package idle

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestAStateIs88Bytes(t *testing.T) {
	require.EqualValues(t, 88, unsafe.Sizeof(conn{}), "the budget per connection, with the table and the wheel, is 146 bytes")
}
