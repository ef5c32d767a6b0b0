package server

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/settings"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// ErrBadConfig is returned by New for a Config that it refuses, ErrBadAddress included.
var ErrBadConfig = errors.New("server: bad configuration")

// Config is the configuration of a Server.
type Config struct {
	// Addresses are the addresses to listen on: host:port for TCP, or a URL with the scheme tcp,
	// tcp4, tcp6, unix or fd. At least one of these and of Listeners is required.
	//
	//	127.0.0.1:7000          with port 0 the kernel chooses a free port, see [Server.Addr]
	//	unix:///run/chat.sock   the path as it is; the socket of a dead server is replaced
	//	unix://@chat            an abstract socket of Linux
	//	fd://3                  a socket that the process inherits, from systemd for example
	Addresses []string

	// Listeners are further listeners. Run closes them. gnet takes connections of the types
	// *net.TCPConn and *net.UnixConn: others are closed, and a warning is logged. Connections keep
	// the keepalive of their listener, which by default is that of package net.
	Listeners []net.Listener

	// Handler gets the events of all connections. It is required. It stops the server by
	// returning gnet.Shutdown. The Engine of OnBoot and OnShutdown is empty, because gnet does not
	// listen: use the methods of the Server and of its Reaper instead.
	Handler gnet.EventHandler

	// Idle configures the Reaper. Its Logger, if nil, is the Logger below.
	//
	// If Idle.MaxConnections is zero, it is as many as the limit of descriptors allows
	// (RLIMIT_NOFILE, which Go raises to its hard limit). It is never more than that. Run logs the
	// limit, and [Server.Limit] returns it. At the limit nothing is accepted: new clients wait in
	// the queue of the kernel. Update of the Reaper changes how many connections the Reaper keeps,
	// not the number at which accepting is paused.
	//
	// If Idle.OutputLimit.Total is zero, it is what [OutputTotal] returns, so that clients that
	// read no answers do not fill the memory. If negative, there is no such limit.
	// Idle.OutputLimit.Hard stays as it is, because only the caller knows the slowest client: set
	// it, so that one client cannot use up the total of all.
	Idle idle.Config

	// NumEventLoop is the number of event loops. If zero, it is GOMAXPROCS, which follows the CPU
	// limit of a container. Negative values are refused.
	NumEventLoop int

	// PressureTimeout is the length to which idle timeouts shrink under pressure. [Pressure] is the
	// highest of four ratios: connections to Idle.MaxConnections, descriptors to the limit of the
	// process, the live heap to GOMEMLIMIT, and the memory of the container to its limit. From 85 %
	// on timeouts shrink linearly, and at 95 % they are down to PressureTimeout. If zero, they do
	// not shrink.
	PressureTimeout time.Duration

	// SocketBuffer is the number of bytes that the kernel keeps in each direction for a connection
	// (SO_RCVBUF, SO_SNDBUF): sent by a peer and not read, and sent to a peer that does not take
	// it. It also limits the speed of a connection, to about so many bytes in each round trip. It
	// is at most twice net.core.rmem_max and wmem_max. If zero, net.ipv4.tcp_rmem and tcp_wmem are
	// the limits, by default up to 6 and 4 MiB.
	SocketBuffer int

	// Sources limits the connections of each source. A connection above the limit is closed at
	// once, and the handler does not see it.
	Sources SourceLimits

	// AcceptRate is the limit of new connections per second, on average; twice as many may arrive
	// at once. A connection above the limit is closed at once. If zero, there is no limit.
	AcceptRate int

	// ReusePort lets other processes listen on the same TCP port at the same time (SO_REUSEPORT on
	// Linux). The kernel spreads new connections over all of them, a process that does not accept
	// now included. If false, an address in use is an error.
	ReusePort bool

	// Drain says how connections are closed when the server stops.
	Drain Drain

	// OnStarted is called when the server listens, before the first connection is served. It must
	// not call Shutdown or Close, which would wait for it. If nil, nothing is called.
	OnStarted func(*Server)

	// Admin is a listener for operators: a live page, metrics, probes, and changes of timeouts. It
	// is open from before the first connection until Run returns. If Idle.KeepClosed is zero, it
	// is [KeepClosed].
	Admin Admin

	// Logger gets the log lines of gnet and of the Reaper. Level info has the configuration at
	// start, and every ten seconds what was reaped; level debug has each reap. Each kind of warning
	// is logged at most once a second. If nil, warnings go to slog.Default().
	//
	// A goroutine of its own writes the records, so a Logger that blocks does not block the server.
	// Of more than 1,024 records that wait, the newest are dropped, and a warning tells how many.
	// Run waits at its end until all records are written, but at most a second.
	Logger *slog.Logger

	// Options are further options of gnet. They are applied last. Those of listeners, of load
	// balancing and of the logger have no effect.
	Options []gnet.Option
}

// SourceLimits are the limits of one source. See [sourcelimit.Limits].
type SourceLimits = sourcelimit.Limits

// Drain says how a server closes its connections when it stops, so that its clients do not all
// reconnect elsewhere at once. A connection is busy if it was active within the last second, and
// idle otherwise. OnClose gets reap.Drained for a connection that the drain closes, and nil for one
// that is left at its end. The zero Drain is none: all connections are closed at once.
type Drain struct {
	// Delay is the time for which the server goes on as before. In this time load balancers notice
	// that the server stops.
	Delay time.Duration
	// Spread is the time after Delay in which idle connections are closed, at random instants. No
	// new connections are served. A peer that sends something at the moment of the close may see a
	// reset instead of an end.
	Spread time.Duration
	// Timeout is the time after Delay in which all connections are closed: the busy ones at random
	// instants between Spread and Timeout, held ones at its end. Exempt connections keep the server
	// until then; they are closed without a goodbye, and OnClose gets nil. If zero, it is twice
	// Spread, at most 30 days.
	Timeout time.Duration
	// KeepListening keeps the listeners after Delay, without accepting. New clients wait in the
	// queue of the kernel. Set it if the sockets outlive the server, as those of systemd do: the
	// next server accepts the clients that wait. If false, the listeners are closed after Delay.
	// New clients are refused at once then, so that they can try another server. Listeners without
	// SetDeadline are closed in any case. If clients wait for room when the drain begins, up to two
	// of them for each event loop and listener are closed: the server has accepted these already.
	KeepListening bool
}

// Admin configures an HTTP listener for operators, with a live page, JSON, metrics and probes, see
// package admin. The zero Admin is off.
type Admin struct {
	// Addr is the host:port to listen on, such as 127.0.0.1:7080. An address that other machines
	// can reach needs a Token.
	Addr string
	// Token is the secret for changes, at least 16 characters. If empty, nothing can be changed.
	Token string
	// Profiles adds /debug/pprof/.
	Profiles bool
}

// check returns the Config with its defaults filled in, or an error that joins all that is wrong
// with it.
func (cfg Config) check() (Config, error) {
	errs := []error{cfg.checkAddresses()}
	if cfg.Handler == nil {
		errs = append(errs, errors.New("server: Config.Handler is nil: set the gnet.EventHandler to run"))
	}
	loops := cfg.gnetOptions().NumEventLoop
	if loops < 0 && cfg.NumEventLoop >= 0 {
		errs = append(errs, fmt.Errorf("server: Config.Options has %d event loops: set a positive number", loops))
	}
	configtable.Server.CheckEach(&cfg, func(_, format string, args ...any) {
		errs = append(errs, errorf("server: "+format, args...))
	})
	errs = append(errs, cfg.Drain.check())
	if cfg.Sources.Connections >= 0 && cfg.Sources.Rate >= 0 { // otherwise CheckRanges says so
		if _, err := sourcelimit.New(cfg.Sources); err != nil {
			errs = append(errs, fmt.Errorf("server: Config.Sources: %w", err))
		}
	}
	cfg.NumEventLoop = cmp.Or(loops, runtime.GOMAXPROCS(0))
	cfg.Logger = logging.Wrap(cfg.Logger)
	cfg.Idle.Logger = logging.Wrap(cmp.Or(cfg.Idle.Logger, cfg.Logger))
	// If no setting of Idle is set, package idle says so.
	if slices.ContainsFunc(configtable.Idle, func(s configtable.Setting) bool { return !s.Of(&cfg.Idle).IsZero() }) {
		cfg.complete(&cfg.Idle)
	}
	return cfg, errors.Join(errs...)
}

// checkAddresses checks what can be checked without a look-up of names.
func (cfg *Config) checkAddresses() error {
	if strings.Join(cfg.Addresses, "") == "" && len(cfg.Listeners) == 0 {
		return errorf("%w: %s is not set: set it, for example to 127.0.0.1:7000", ErrBadAddress, field("Addresses"))
	}
	var errs []error
	for i, addr := range cfg.Addresses {
		if _, mistake := parseAddress(addr); mistake != "" {
			errs = append(errs, errorf("%w: %s has %q: %s", ErrBadAddress, field("Addresses"), addr, mistake))
		}
		if slices.Contains(cfg.Addresses[:i], addr) && !strings.HasSuffix(addr, ":0") {
			errs = append(errs, errorf("%w: %s has %q twice", ErrBadAddress, field("Addresses"), addr))
		}
	}
	for _, ln := range cfg.Listeners {
		if v := reflect.ValueOf(ln); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			errs = append(errs, errors.New("server: Config.Listeners has a nil listener: leave it out"))
		}
	}
	return errors.Join(errs...)
}

func (d *Drain) check() error {
	d.Timeout = cmp.Or(d.Timeout, min(2*d.Spread, max(d.Spread, configtable.LongestDrain)))
	if d.Timeout >= 0 && d.Timeout < d.Spread {
		return errorf("server: %s is %v, less than %s of %v: set a longer one, or 0 for twice as long",
			field("Drain.Timeout"), d.Timeout, field("Drain.Spread"), d.Spread)
	}
	return nil
}

// KeepClosed is the default of Config.Idle.KeepClosed for a server with a page.
const KeepClosed = 128

// complete fills in the defaults that only a server has.
func (cfg *Config) complete(of *idle.Config) {
	of.OutputLimit.Total = OutputTotal(of.OutputLimit)
	if cfg.Admin.Addr != "" {
		of.KeepClosed = cmp.Or(of.KeepClosed, KeepClosed)
	}
}

// gnetOptions returns the options of gnet that are set.
func (cfg *Config) gnetOptions() gnet.Options {
	opts := gnet.Options{NumEventLoop: cfg.NumEventLoop}
	for _, set := range cfg.Options {
		set(&opts)
	}
	opts.NumEventLoop = cmp.Or(opts.NumEventLoop, cfg.NumEventLoop)
	return opts
}

// A badConfig is an error that is ErrBadConfig without the text of it.
type badConfig struct{ error }

func (e badConfig) Is(target error) bool { return target == ErrBadConfig }
func (e badConfig) Unwrap() error        { return e.error }

// AddFlags adds a flag for each setting of the server, such as addr and drain-spread, to a FlagSet.
// The table of them is in docs/settings.md. The values of the Config are the defaults, and Parse
// changes them. It reads Admin.Token from the file that admin-token-file names.
//
// Package settings adds the flags of Idle. [settings.Explain] names the flags in errors of New and
// Run.
func (cfg *Config) AddFlags(set *flag.FlagSet) {
	for _, s := range configtable.Server {
		if s.Secret {
			set.Func(s.Name, s.Usage(), func(file string) (err error) {
				cfg.Admin.Token, err = settings.ReadToken(file)
				return err
			})
			continue
		}
		s.AddFlag(set, cfg)
	}
}

// LogValue returns the settings that are not zero, without Idle, which is logged by itself.
func (cfg Config) LogValue() slog.Value { return configtable.Server.LogValue(&cfg) }

// field is the path of a field in the text of an error.
type field = configtable.Field

// errorf is fmt.Errorf for errors that name fields. [settings.Explain] can name flags instead.
func errorf(format string, args ...any) error { return configtable.Server.Errorf(format, args...) }
