// Command mqtt is a broker for a part of MQTT 3.1.1, on gnet: CONNECT, PINGREQ, SUBSCRIBE to exact
// topics, and PUBLISH with QoS 0. It shows timeouts that clients ask for.
//
//	go -C examples run ./mqtt
//	mosquitto_sub -k 10 -t news             # in another terminal
//	mosquitto_pub -t news -m hello          # in a third one
//	kill -STOP PID                          # of mosquitto_sub: after 15 s it is closed
//
// A client that sends nothing for 1.5 times its keepalive is closed (MQTT 3.1.1, 3.1.2.10). One
// with keepalive 0 gets -read-timeout. One that sends no CONNECT is closed after
// -handshake-timeout.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"log"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

type broker struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper
	topics topics
}

func (b *broker) OnClose(c gnet.Conn, err error) gnet.Action {
	b.topics.remove(c)
	log.Printf("%v %v closed: %v", c.RemoteAddr(), c.Context(), err)
	return gnet.None
}

func (b *broker) OnTraffic(c gnet.Conn) gnet.Action {
	for {
		buffered, _ := c.Peek(-1)
		kind, body, n, err := packet(buffered)
		if kind != 0 && (c.Context() == nil) != (kind == connect) {
			err = errors.New("CONNECT must be the first packet, and only that")
		}
		if err == nil && n == 0 {
			return gnet.None // the rest of the packet is on its way
		}
		if err == nil {
			err = b.handle(c, kind, body)
		}
		if err != nil {
			if err != errDisconnect {
				log.Printf("%v: %v", c.RemoteAddr(), err)
			}
			return gnet.Close
		}
		_, _ = c.Discard(n)
	}
}

var errDisconnect = errors.New("the client disconnects")

// handle handles a packet. The body may not be kept.
func (b *broker) handle(c gnet.Conn, kind byte, body []byte) error {
	switch kind {
	case connect:
		return b.connect(c, body)
	case publish: // the packet goes to the subscribers as it is
		topic, _, err := text(body)
		if err != nil {
			return err
		}
		b.topics.publish(topic, frame(publish, body))
	case subscribe:
		filters, answer, err := parseSubscribe(body)
		conn, _ := b.reaper.Conn(c)
		for _, topic := range filters {
			err = errors.Join(err, b.topics.add(topic, c, conn))
		}
		_, _ = c.Write(answer)
		return err
	case pingreq:
		_, _ = c.Write(frame(pingresp, nil))
	case disconnect:
		return errDisconnect
	default:
		return errors.New("a packet of an unknown type, or a QoS above 0")
	}
	return nil
}

func (b *broker) connect(c gnet.Conn, body []byte) error {
	protocol, rest, err := text(body)
	if err != nil || protocol != "MQTT" || len(rest) < 4 || rest[0] != 4 {
		return errors.Join(errors.New("no CONNECT of MQTT 3.1.1"), err)
	}
	id, _, err := text(rest[4:])
	if err != nil {
		return err
	}
	conn, _ := b.reaper.Conn(c)
	conn.Ready() // the handshake is over
	if seconds := binary.BigEndian.Uint16(rest[2:]); seconds > 0 {
		if err := conn.SetTimeouts(idle.Timeouts{Read: time.Duration(seconds) * time.Second * 3 / 2}); err != nil {
			return err
		}
	}
	c.SetContext(id)
	_, _ = c.Write(frame(connack, []byte{0, 0}))
	return nil
}

func main() {
	b := &broker{}
	cfg := server.Config{Addresses: []string{"127.0.0.1:1883"}, Handler: b, OnStarted: func(s *server.Server) {
		log.Printf("listening on %v", s.Addr())
	}}
	cfg.AddFlags(flag.CommandLine)
	cfg.Idle.OutputMarks.OnWritable = func(gnet.Conn, bool) {} // publish asks
	limits := settings.New(flag.CommandLine, idle.Config{
		HandshakeTimeout: 10 * time.Second,
		ReadTimeout:      time.Hour,
		OutputMarks:      idle.OutputMarks{High: maxPacket}, // slow subscribers
		OutputLimit:      idle.OutputLimit{Hard: 2 * maxPacket},
	})
	flag.Parse()
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	b.reaper = srv.Reaper()
	if err := srv.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
