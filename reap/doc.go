// Package reap has the words that packages idle and idlenet share: why a connection was reaped
// ([Reason], [Error]), what was observed ([Event]), and what is counted ([Stats]). Both packages
// have them under names of their own, so most programs need not import this one.
package reap
