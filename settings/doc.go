// Package settings reads an [idle.Config] or an [idlenet.Config] from flags and from a file of
// limits, and reads both again on SIGHUP.
//
// Each setting has one name, such as read-timeout, in flags, in the file, in logs and in JSON. The
// table of all settings is in docs/settings.md. A program binds them to a [flag.FlagSet]:
//
//	limits := settings.New(flag.CommandLine, idle.Config{ReadTimeout: time.Minute})
//	flag.StringVar(&limits.File, "limits", "", "`file` with limits, read again on SIGHUP")
//	flag.Parse()
//
// [Source.Load] sets the fields of a Config. [Source.Watch] catches SIGHUP, and [Watcher.Run] hands
// the new values to [idle.Reaper.Update] or [idlenet.Reaper.Update]. Fields that are funcs, such
// as Goodbye, stay as they are.
// For cobra, bind a FlagSet and give it to AddGoFlagSet. The method AddFlags of server.Config adds
// the flags of a server.
//
// # The file of limits
//
// A line is a setting and its value, as in "read-timeout 30s". It wins over the flag of the same
// name. A setting that is not in the file is as the flags say. A # begins a comment. Empty lines
// are skipped.
//
// The file is a regular file: a FIFO or a device is an error, since opening it could block. A file
// with a mistake changes nothing.
//
// # Mistakes
//
// Flags and lines of the file are parsed here, and the values of the file are checked one by one.
// Everything else is checked by [idle.Middleware], [idlenet.Listen] and Update, and for a server by
// server.New. [Explain] turns these errors into a line for operators, with settings named as flags.
package settings
