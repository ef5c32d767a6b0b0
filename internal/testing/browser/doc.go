// Package browser has only tests: they open the pages of the other packages in Chromium. It is a
// module of its own, so that users of the packages do not depend on the driver of the browser.
package browser
