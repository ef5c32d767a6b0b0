// Package descriptor tells how many file descriptors the process may have, and how many it has.
package descriptor
