package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// maxTopics is the number of topics that a client may subscribe to.
const maxTopics = 100

// Topics are the subscribers of each topic. Safe for concurrent use.
type topics struct {
	mu   sync.Mutex
	subs map[string]map[gnet.Conn]idle.Conn // guarded by mu; by topic
	of   map[gnet.Conn][]string             // guarded by mu; the topics of a subscriber
}

func (t *topics) add(topic string, c gnet.Conn, conn idle.Conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case slices.Contains(t.of[c], topic):
		return nil
	case len(t.of[c]) == maxTopics:
		return errors.New("too many subscriptions")
	case t.subs == nil:
		t.subs, t.of = map[string]map[gnet.Conn]idle.Conn{}, map[gnet.Conn][]string{}
	}
	if t.subs[topic] == nil {
		t.subs[topic] = map[gnet.Conn]idle.Conn{}
	}
	t.subs[topic][c] = conn
	t.of[c] = append(t.of[c], topic)
	return nil
}

// remove removes a connection from all topics.
func (t *topics) remove(c gnet.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, topic := range t.of[c] {
		if delete(t.subs[topic], c); len(t.subs[topic]) == 0 {
			delete(t.subs, topic)
		}
	}
	delete(t.of, c)
}

// publish sends a packet to the subscribers of a topic, which may be on other event loops. Those
// that do not read miss it: QoS 0 allows that.
func (t *topics) publish(topic string, packet []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, conn := range t.subs[topic] {
		_ = c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
			if conn.Writable() {
				_, _ = c.Write(packet) // an error closes the connection
			}
			return nil
		}))
	}
}
