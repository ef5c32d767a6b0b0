// Package prose has only tests: they check the wording and the width of comments and documents.
package prose
