package idle

import (
	"time"

	"github.com/panjf2000/gnet/v2"
)

// expiryTimeout is the timeout of the servers of BenchmarkMassExpiry.
const expiryTimeout = 4 * time.Second

// expiryPrefix is followed by the name of a server in childEnv.
const expiryPrefix = "expiry:"

// expiryServer returns the handler of a server of BenchmarkMassExpiry.
func expiryServer(name string) (gnet.EventHandler, *echo) {
	e := newEcho()
	if name == "AfterFunc" {
		return &afterFunc{e}, e
	}
	r, err := Middleware(e, Config{ReadTimeout: expiryTimeout})
	if err != nil {
		panic(err)
	}
	if name == "unbounded" { // closes everything that is due in one task
		r.taskTime = time.Hour
	}
	return r, e
}

// afterFunc closes silent connections with one time.AfterFunc each. Each message resets it.
type afterFunc struct{ *echo }

func (h *afterFunc) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(time.AfterFunc(expiryTimeout, func() { _ = c.Close() }))
	return h.echo.OnOpen(c)
}

func (h *afterFunc) OnTraffic(c gnet.Conn) gnet.Action {
	c.Context().(*time.Timer).Reset(expiryTimeout)
	return h.echo.OnTraffic(c)
}

func (h *afterFunc) OnClose(c gnet.Conn, err error) gnet.Action {
	c.Context().(*time.Timer).Stop()
	return h.echo.OnClose(c, err)
}
