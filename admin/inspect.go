package admin

import (
	"context"
	"maps"
	"net"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// An inspector reads the connections of a Reaper. Its results have the form of the JSON answers.
type inspector struct{ reaper reap.Reaper }

// open returns the number of open connections.
func (i inspector) open() int { return i.reaper.Connections() }

// limit returns the largest number of open connections, 0 if it is unlimited.
func (i inspector) limit() int {
	limit, _ := i.reaper.Limits()["max-connections"].(int)
	return limit
}

// connections returns the first n connections in an order.
func (i inspector) connections(ctx context.Context, by string, n int) ([]connection, error) {
	found, err := i.reaper.Inspect(ctx, reap.Query{By: by, Limit: n})
	list := make([]connection, 0, len(found.Connections))
	for _, c := range found.Connections {
		list = append(list, connection{
			ID: c.ID, Remote: addrText(c.Remote), State: c.State,
			Age: c.Age.Seconds(), ReadIdle: c.ReadIdle.Seconds(), WriteIdle: c.WriteIdle.Seconds(), Due: c.Due.Seconds(),
			Received: c.Received, Sent: c.Sent, Output: c.Output, Unwritable: c.Unwritable, Missed: c.Missed,
		})
	}
	return list, err
}

// rings returns the timing wheels of all event loops, each in at most so many sectors.
func (i inspector) rings(ctx context.Context, sectors int) (list []ring, err error) {
	found, err := i.reaper.Inspect(ctx, reap.Query{Sectors: sectors})
	for _, r := range found.Rings {
		list = append(list, ring{
			r.Loop, r.Connections, r.Turn.Seconds(), r.Now.Seconds(), r.Sectors, r.Later, withoutZeros(r.Reaped),
		})
	}
	return list, err
}

// closed returns the connections that were reaped last, newest first. It waits for no event loop.
func (i inspector) closed() []closed {
	found, _ := i.reaper.Inspect(context.Background(), reap.Query{Closed: true})
	return newClosed(found.Closed)
}

func newClosed(all []reap.Closed) []closed {
	list := make([]closed, 0, len(all))
	for _, c := range all {
		list = append(list, closed{
			At: c.At.UTC(), Remote: addrText(c.Remote), Reason: c.Err.Reason,
			Detail: c.Err.Text(),
			Age:    c.Age.Seconds(), Lasted: c.Err.Lasted.Seconds(), Limit: c.Err.Limit.Seconds(), Late: c.Err.Late.Seconds(),
		})
	}
	return list
}

// withoutZeros takes the zeros out of counts: frames are short.
func withoutZeros(c reap.Counts) reap.Counts {
	maps.DeleteFunc(c, func(_ reap.Reason, n uint64) bool { return n == 0 })
	return c
}

// addrText returns the text of an address, empty if there is none. The peer of a unix socket may
// have no address.
func addrText(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

// A connection is an reap.ConnInfo in JSON.
type connection struct {
	ID         reap.ConnID `json:"id"`
	Remote     string      `json:"remote"`
	State      string      `json:"state"`
	Age        float64     `json:"age_seconds"`
	ReadIdle   float64     `json:"read_idle_seconds"`
	WriteIdle  float64     `json:"write_idle_seconds"`
	Due        float64     `json:"due_seconds"`
	Received   uint64      `json:"received_bytes"`
	Sent       uint64      `json:"sent_bytes"`
	Output     int         `json:"output_bytes"`
	Unwritable bool        `json:"unwritable,omitempty"`
	Missed     int         `json:"missed_heartbeats"`
}

// A closed is an reap.Closed in JSON.
type closed struct {
	At     time.Time   `json:"at"`
	Remote string      `json:"remote"`
	Reason reap.Reason `json:"reason"`
	Detail string      `json:"detail"`
	Age    float64     `json:"age_seconds"`
	Lasted float64     `json:"lasted_seconds"`
	Limit  float64     `json:"limit_seconds"`
	Late   float64     `json:"late_seconds"`
}

// A ring is an reap.Ring in JSON.
type ring struct {
	Loop        int         `json:"loop"`
	Connections int         `json:"connections"`
	Turn        float64     `json:"turn_seconds"`
	Position    float64     `json:"now_seconds"` // of the hand, over all turns
	Sectors     []int       `json:"sectors"`
	Later       int         `json:"later"`
	Reaped      reap.Counts `json:"reaped"`
}
