package integration

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// pageObjects returns the objects on a page of docs/tasks, in order, with the addresses of this
// machine. The test fails if the page has not as many as it knows.
func pageObjects(t testing.TB, page string, count int, here *strings.Replacer) []string {
	t.Helper()
	return pageBlocks(t, page, "apiVersion", count, here)
}

// pageBlocks is pageObjects for the blocks of YAML that begin with a field.
func pageBlocks(t testing.TB, page, field string, count int, here *strings.Replacer) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/tasks/" + page)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n("+field+":.*?)```").FindAllStringSubmatch(string(text), -1) {
		out = append(out, here.Replace(block[1]))
	}
	if len(out) != count {
		t.Fatalf("%s has %d blocks that begin with %s: this test knows %d", page, len(out), field, count)
	}
	return out
}
