package wasm_test

import (
	"path"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/wasm"
)

// FuzzSourceOf: a source that is taken is a file with an absolute path, or a URL of a web server with
// a sum.
func FuzzSourceOf(f *testing.F) {
	sum := strings.Repeat("aB", 32)
	for _, address := range []string{"file:///a/b.wasm", "file://a", "http://a.example/b?c", "https://a:b@c/", "oci://a/b", "a/b:1", "://", "http://"} {
		f.Add(address, sum)
		f.Add(address, "")
	}
	f.Fuzz(func(t *testing.T, address, sum string) {
		got, atURL, atSum := wasm.SourceOf(address, sum)
		if atURL != nil || atSum != nil {
			return
		}
		if (got.File == "") == (got.URL == "") || got.File != "" && !path.IsAbs(got.File) || got.URL != "" && len(got.Sum) != 64 || got.Sum != strings.ToLower(sum) {
			t.Errorf("%q, %q: %+v", address, sum, got)
		}
	})
}
