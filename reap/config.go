package reap

import "time"

// A ConfigError is one mistake in a Config of package idle or idlenet. A function that checks a
// Config returns all mistakes, joined by errors.Join.
type ConfigError struct {
	// Package is the package of the Config, "idle" or "idlenet".
	Package string
	// Field is the field at fault, such as "ReadTimeout" or "OutputLimit.Soft", or "" if the
	// mistake is not in one field.
	Field string
	// Setting is the name of the field in flags, files and logs, such as "output-soft-limit", or ""
	// if it has none.
	Setting string
	// Err is the mistake, without the name of the package.
	Err error
}

// Error returns the text with fields named as in "Config.ReadTimeout".
func (e *ConfigError) Error() string { return e.Package + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// Text returns the text without the name of the package. It calls name for each field in it;
// setting is the name of the field in flags, or "".
func (e *ConfigError) Text(name func(field, setting string) string) string {
	if named, ok := e.Err.(interface {
		Text(name func(field, setting string) string) string
	}); ok {
		return named.Text(name)
	}
	return e.Err.Error()
}

// MinRate is the least rate at which an open message must come in. It needs the counters of Linux
// and TCP.
type MinRate struct {
	BytesPerSecond int
	Window         time.Duration // in which the bytes are counted
	Grace          time.Duration // from the beginning of a message to its first window
	Always         bool          // a message is always open, from the first moment on
}

// ConnLimits are limits that one connection has of its own, instead of those of the Config. A limit
// of 0 is that of the Config, and a negative one is none. The idle timeouts are rounded up to whole
// ticks, and Config.Jitter is added to them. A MinRate with BytesPerSecond replaces all fields of
// Config.MinRate: its Window is 5 s if zero, and its Grace is none.
type ConnLimits struct {
	ReadTimeout, WriteTimeout, AllTimeout time.Duration
	HandshakeTimeout                      time.Duration
	WriteStallTimeout                     time.Duration
	MinRate                               MinRate // negative BytesPerSecond for none
	MaxAge                                time.Duration
	NoHeartbeat                           bool // Config.Heartbeat does not apply
}
