package main

import (
	"encoding/binary"
	"errors"
)

// The first bytes of packets, with flags.
const (
	connect    = 0x10
	connack    = 0x20
	publish    = 0x30 // QoS 0, not retained
	subscribe  = 0x82
	suback     = 0x90
	pingreq    = 0xc0
	pingresp   = 0xd0
	disconnect = 0xe0
)

const maxPacket = 1 << 20 // bytes

var errShort = errors.New("a packet is too short")

// packet returns the first packet of b and its length, which is 0 while the packet is incomplete.
// The kind is 0 before the first byte.
func packet(b []byte) (kind byte, body []byte, n int, err error) {
	if len(b) == 0 {
		return 0, nil, 0, nil
	}
	size, digits := binary.Uvarint(b[1:min(5, len(b))]) // in MQTT it has four bytes at most
	switch {
	case size > maxPacket || digits <= 0 && len(b) >= 5:
		return b[0], nil, 0, errors.New("a packet is too long")
	case digits <= 0 || len(b) < 1+digits+int(size):
		return b[0], nil, 0, nil
	}
	n = 1 + digits + int(size)
	return b[0], b[1+digits : n], n, nil
}

// frame returns a packet. It copies the body.
func frame(kind byte, body []byte) []byte {
	return append(binary.AppendUvarint([]byte{kind}, uint64(len(body))), body...)
}

// text returns the text at the beginning of b, and the rest.
func text(b []byte) (s string, rest []byte, err error) {
	if len(b) < 2 {
		return "", nil, errShort
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	if len(b) < n {
		return "", nil, errShort
	}
	return string(b[2:n]), b[n:], nil
}

// parseSubscribe returns the topics of a SUBSCRIBE, and the SUBACK for it.
func parseSubscribe(body []byte) (topics []string, answer []byte, err error) {
	if len(body) < 5 {
		return nil, nil, errShort
	}
	granted := body[:2:2] // the number of the packet, and a QoS of 0 for each topic
	for rest := body[2:]; len(rest) > 0; rest = rest[1:] {
		var topic string
		if topic, rest, err = text(rest); err != nil || len(rest) == 0 {
			return nil, nil, errShort
		}
		topics, granted = append(topics, topic), append(granted, 0)
	}
	return topics, frame(suback, granted), nil
}
