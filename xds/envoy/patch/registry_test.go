package patch_test

import (
	"go/parser"
	"go/token"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestRegistry: the types of all packages of Envoy's API v3 that are configuration are linked.
func TestRegistry(t *testing.T) {
	t.Parallel()
	const module = "github.com/envoyproxy/go-control-plane/envoy/"
	out, err := exec.Command("go", "list", module+"config/...", module+"extensions/...", module+"type/...", module+"watchdog/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "registry.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		linked[path] = true
	}
	current, count := regexp.MustCompile(`/v3(alpha)?$`), 0
	for path := range strings.FieldsSeq(string(out)) {
		if !current.MatchString(path) {
			continue
		}
		count++
		if !linked[path] {
			t.Errorf("registry.go lacks %s", path)
		}
	}
	if count < 300 {
		t.Errorf("there are %d packages", count)
	}
}
