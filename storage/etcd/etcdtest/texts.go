package etcdtest

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// CheckTexts fails for each text that no source file of some Go modules has. Code that recognises
// another program's words by their text does not notice that an upgrade has changed them.
func CheckTexts(t testing.TB, texts []string, modules ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, text := range texts {
		missing[text] = true
	}
	for _, module := range modules {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		dir := strings.TrimSpace(string(out))
		if err != nil || dir == "" {
			t.Fatalf("where is the source of %s: %q, %v", module, dir, err)
		}
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for text := range missing {
				if bytes.Contains(source, []byte(text)) {
					delete(missing, text)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for text := range missing {
		t.Errorf("no source of %s has %q any more: does it say so in other words?", strings.Join(modules, ", "), text)
	}
}
