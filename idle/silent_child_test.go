package idle

import (
	"time"

	"github.com/panjf2000/gnet/v2"
)

// silentPrefix is followed by the name of a server of BenchmarkSilence in childEnv.
const silentPrefix = "silent:"

// silentConfigs are the servers of BenchmarkSilence. No deadline is near while it measures.
var silentConfigs = map[string]Config{
	"read timeout": {ReadTimeout: time.Hour},
	"everything": {
		ReadTimeout: time.Hour, WriteTimeout: time.Hour, AllTimeout: time.Hour, FirstByteTimeout: time.Hour,
		HandshakeTimeout: time.Hour, WriteStallTimeout: 30 * time.Second,
		OutputLimit: OutputLimit{Hard: 1 << 20, Soft: 1 << 19, SoftFor: 10 * time.Second},
		MinRate:     MinRate{BytesPerSecond: 1}, MaxAge: 24 * time.Hour, MaxConnections: 1 << 20,
		Heartbeat: Heartbeat{Interval: time.Hour, Ping: func(gnet.Conn) []byte { return nil }},
	},
}

// silentServer returns the handler of a server of BenchmarkSilence.
func silentServer(name string) (gnet.EventHandler, *echo) {
	e := newEcho()
	cfg, watched := silentConfigs[name]
	if !watched {
		return e, e
	}
	r, err := Middleware(e, cfg)
	if err != nil {
		panic(err)
	}
	return r, e
}
