package nettest_test

import (
	"fmt"
	"log"
	"log/slog"
	"net"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"

	"github.com/idlewheel/idlewheel/idlenet"
)

// An MQTT server. The protocol has pings of its own, at an interval that the client chooses; the
// server closes a connection after 1.5 intervals. ReadTimeout bounds what a client can choose.
func Example_mqtt() {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan *idlenet.ReapError, 1)
	ln, err := idlenet.Listen(inner, idlenet.Config{
		ReadTimeout: 200 * time.Millisecond,
		OnReap:      func(_ net.Conn, reason *idlenet.ReapError) { ended <- reason },
	})
	if err != nil {
		log.Fatal(err)
	}
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		log.Fatal(err)
	}
	if err := server.AddListener(listeners.NewNet("idlenet", ln)); err != nil {
		log.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	const connect = "\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test" // keepalive 60 s
	if _, err := client.Write([]byte(connect)); err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-ended).Reason)
	// Output: read idle
}
