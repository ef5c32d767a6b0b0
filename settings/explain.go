package settings

import "github.com/idlewheel/idlewheel/internal/configtable"

// Explain returns an error as one line for operators. Settings of [idle.Config], idlenet.Config and
// server.Config are named by prefix and their name: with the prefix "--" they are flags, as in
// "--read-timeout". Errors that errors.Join has joined are separated by semicolons. The names of
// packages at the beginning, as in "idle: ", are left out.
func Explain(err error, prefix string) string { return configtable.Explain(err, prefix) }
