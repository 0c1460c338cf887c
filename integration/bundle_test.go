package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// bundle takes a debug bundle of the server, which must be complete, and returns its files.
func (s *server) bundle(flags ...string) map[string][]byte {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "bundle.tar.gz")
	s.must("", append([]string{"debug", "bundle", "-o", file}, flags...)...)
	packed, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		s.t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if files[strings.TrimPrefix(header.Name, "portolan-debug/")], err = io.ReadAll(r); err != nil {
			s.t.Fatal(err)
		}
	}
}
