// Package apidoc has only tests: they check the documentation, the examples, the number of exported
// names and the number of files of the other packages.
package apidoc
