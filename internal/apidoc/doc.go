// Package apidoc has no code, only tests of what the documentation of the other packages holds.
package apidoc
