package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // packages of Debian
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // packages of RPM
)

const maintainer = "The Portolan authors <portolan-mesh@users.noreply.github.com>"

// packages writes the packages that files/NAME/nfpm.yaml describes, and returns what is in one
// of them.
func (p product) packages() (*nfpm.Info, error) {
	if err := p.stageScripts(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(p.files, p.name, "nfpm.yaml"))
	if err != nil {
		return nil, err
	}
	words := map[string]string{
		"FILES": filepath.Join(p.files, p.name), "EXAMPLES": filepath.Join(p.source, "examples"), "STAGE": p.stage, "BINARY": p.binary(),
		"ARCH": p.arch, "VERSION": p.packageVersion(), "MAINTAINER": maintainer,
	}
	described := os.Expand(string(text), func(word string) string { return words[word] })
	var info *nfpm.Info
	for _, format := range []string{"rpm", "deb"} {
		config, err := nfpm.Parse(strings.NewReader(described))
		if err != nil {
			return nil, err
		}
		if info, err = config.Get(format); err != nil {
			return nil, err
		}
		info = nfpm.WithDefaults(info)
		info.MTime, info.RPM.BuildHost = p.date, "localhost"
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return nil, err
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return nil, err
		}
		if err := create(p.file("."+format), func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return nil, err
		}
	}
	return info, nil
}

// stageScripts writes the scripts of the package, which are the same for both but for the name.
func (p product) stageScripts() error {
	scripts, err := filepath.Glob(filepath.Join(p.files, "scripts", "*"))
	if err != nil {
		return err
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			return err
		}
		named := strings.ReplaceAll(string(text), "@NAME@", p.name)
		if err := os.WriteFile(filepath.Join(p.stage, filepath.Base(script)), []byte(named), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// archive writes the files of a package as a tar archive, to be unpacked at / or anywhere else.
func (p product) archive(info *nfpm.Info) error {
	return create(p.file(".tar.gz"), func(out io.Writer) error {
		compressed := gzip.NewWriter(out)
		w := tar.NewWriter(compressed)
		for _, c := range info.Contents {
			header := &tar.Header{Name: "./" + strings.TrimPrefix(c.Destination, "/"), Mode: int64(c.FileInfo.Mode.Perm()), ModTime: p.date, Format: tar.FormatUSTAR}
			var body []byte
			var err error
			switch c.Type {
			case files.TypeDir, files.TypeImplicitDir:
				header.Typeflag = tar.TypeDir
			default:
				if body, err = os.ReadFile(c.Source); err != nil {
					return err
				}
				header.Typeflag, header.Size = tar.TypeReg, int64(len(body))
			}
			if err := w.WriteHeader(header); err != nil {
				return err
			}
			if _, err := w.Write(body); err != nil {
				return err
			}
		}
		return errors.Join(w.Close(), compressed.Close())
	})
}

// create writes a file.
func create(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// writeSums writes the checksums of all files, in the order of their names.
func (r release) writeSums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
