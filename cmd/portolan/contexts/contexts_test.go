package contexts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan/contexts"
)

func TestAFileIsReadBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "config.yaml")
	if got, err := contexts.Read(file); err != nil || len(got.Contexts) != 0 {
		t.Fatalf("a missing file: %+v, %v", got, err)
	}
	prod := contexts.Context{Name: "prod", Server: "https://mesh.example:15443", Namespace: "shop", CA: "/etc/ca.pem", Token: "put_secret"}
	want := contexts.File{Current: "prod"}.With(prod).With(contexts.Context{Name: "local"}).With(contexts.Context{Name: "gone"}).Without("gone")
	if err := want.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := contexts.Read(file)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	if c, ok := got.Find("prod"); !ok || c != prod {
		t.Errorf("prod is %+v", c)
	}
	if d := cmp.Diff([]string{"local", "prod"}, got.Names()); d != "" {
		t.Error(d)
	}
	for name, mode := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	if got := got.Without("prod"); got.Current != "" {
		t.Errorf("the current context is %q, which is gone", got.Current)
	}
}

func TestAFileThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"others may read it":   {"current: a\n", 0o640, "chmod 600"},
		"a field is misspelt":  {"contexts: [{name: a, serwer: b}]\n", 0o600, "serwer"},
		"it is not a document": {"]", 0o600, "config.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			if _, err := contexts.Read(file); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %q", err, c.want)
			}
		})
	}
}
