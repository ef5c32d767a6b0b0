package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
)

var (
	linkPattern    = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)?)\)`)
	headingPattern = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	labelPattern   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors of the headings of a document, in the form of GitHub.
func (d document) anchors() map[string]bool {
	list := map[string]bool{}
	seen := map[string]int{}
	prose, _ := d.split()
	for _, line := range prose {
		m := headingPattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, labelPattern.ReplaceAllString(m[1], "$1"))
		if n := seen[slug]; n > 0 {
			list[fmt.Sprintf("%s-%d", slug, n)] = true
		} else {
			list[slug] = true
		}
		seen[slug]++
	}
	return list
}

// broken returns what is wrong with a link of the document, "" if it resolves.
func (d document) broken(t testing.TB, link string) string {
	if strings.Contains(link, "://") {
		if !strings.HasPrefix(link, "https://") {
			return "is not https"
		}
		return ""
	}
	path, anchor, _ := strings.Cut(link, "#")
	target := filepath.Join(root, filepath.FromSlash(d.path))
	if path != "" {
		target = filepath.Join(filepath.Dir(target), filepath.FromSlash(path))
	}
	if _, err := os.Stat(target); err != nil {
		return "leads to no file"
	}
	if anchor != "" && strings.HasSuffix(target, ".md") && !readDocument(t, target).anchors()[anchor] {
		return "has an anchor without a heading"
	}
	return ""
}

func TestLinksResolve(t *testing.T) {
	list := documents(t)
	for _, name := range []string{"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "internal/README.md"} {
		list = append(list, readDocument(t, filepath.Join(root, name)))
	}
	for _, d := range list {
		prose, _ := d.split()
		for i, line := range prose {
			for _, m := range linkPattern.FindAllStringSubmatch(spanPattern.ReplaceAllString(line, "``"), -1) {
				why := d.broken(t, m[1])
				assert.Empty(t, why, "%s:%d: the link %s %s", d.path, i+1, m[1], why)
			}
		}
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	d := document{"docs/netty.md", nil}
	for link, ok := range map[string]bool{
		"../README.md": true, "results.md#guarantees": true, "night.md#symptoms": true, "https://netty.io/": true,
		"../README.md#nonsense": false, "nonsense.md": false, "http://netty.io/": false,
	} {
		why := d.broken(t, link)
		assert.Equal(t, ok, why == "", "%s: %q", link, why)
	}
}
