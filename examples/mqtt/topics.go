package main

import (
	"sync"

	"github.com/panjf2000/gnet/v2"
)

// Topics are the subscribers of each topic. Safe for concurrent use.
type topics struct {
	mu   sync.Mutex
	subs map[string]map[gnet.Conn]bool // guarded by mu; by topic
}

func (t *topics) add(topic string, c gnet.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subs == nil {
		t.subs = map[string]map[gnet.Conn]bool{}
	}
	if t.subs[topic] == nil {
		t.subs[topic] = map[gnet.Conn]bool{}
	}
	t.subs[topic][c] = true
}

// remove removes a connection from all topics.
func (t *topics) remove(c gnet.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, subs := range t.subs {
		if delete(subs, c); len(subs) == 0 {
			delete(t.subs, topic)
		}
	}
}

// publish sends a packet to the subscribers of a topic, which may be on other event loops.
func (t *topics) publish(topic string, packet []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.subs[topic] {
		_ = c.AsyncWrite(packet, nil)
	}
}
