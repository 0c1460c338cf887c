package debug

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// folder is that of all files in an archive.
const folder = "portolan-debug/"

// archive is an archive that is being written, next to its final place. Only its user can
// read it.
type archive struct {
	name  string
	force bool
	now   time.Time

	file  *os.File
	gzip  *gzip.Writer
	tar   *tar.Writer
	files []string // a line of the README for each
}

// createArchive begins an archive. A file of that name is an fs.ErrExist without force.
func createArchive(name string, force bool, now time.Time) (*archive, error) {
	a := &archive{name: name, force: force, now: now}
	if err := a.vacant(); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.part")
	if err != nil {
		return nil, fmt.Errorf("save the archive: %w", err)
	}
	a.file, a.gzip = file, gzip.NewWriter(file)
	a.tar = tar.NewWriter(a.gzip)
	return a, nil
}

// vacant says why the archive cannot have its name.
func (a *archive) vacant() error {
	found, err := os.Stat(a.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("save the archive: %w", err)
	case found.IsDir():
		return fmt.Errorf("save the archive: %s is a directory: name a file", a.name)
	case !a.force:
		return fmt.Errorf("save the archive: %s: %w", a.name, fs.ErrExist)
	}
	return nil
}

// add adds a file. A text is redacted.
func (a *archive) add(name, what string, body []byte, binary bool) error {
	if !binary {
		body = redact(body)
	}
	a.files = append(a.files, fmt.Sprintf("%s\n    %s (%s)", name, what, cli.FormatMiB(int64(len(body)))))
	return a.write(name, body)
}

func (a *archive) write(name string, body []byte) error {
	err := a.tar.WriteHeader(&tar.Header{Name: folder + name, Mode: 0o600, Size: int64(len(body)), ModTime: a.now.Truncate(time.Second), Format: tar.FormatUSTAR})
	if err == nil {
		_, err = a.tar.Write(body)
	}
	if err != nil {
		return fmt.Errorf("save the archive: %w", err)
	}
	return nil
}

// readme begins the README.
const readme = `What one Portolan server told of itself at %s.

No file has an object of the mesh, but those of proxies that were asked for. Keys, tokens
and passwords are replaced by %s. There are names of objects, hosts, users and machines:
look through the files before you give them away.

%s
`

// finish writes the README, puts the archive in its place and returns its size.
func (a *archive) finish() (size int64, err error) {
	text := fmt.Sprintf(readme, a.now.UTC().Format(time.RFC3339), redacted, strings.Join(a.files, "\n"))
	if err := a.write("README", []byte(text)); err != nil {
		return 0, err
	}
	err = errors.Join(a.tar.Close(), a.gzip.Close(), a.file.Sync())
	if err == nil {
		var info fs.FileInfo
		if info, err = a.file.Stat(); err == nil {
			size = info.Size()
		}
	}
	if err = errors.Join(err, a.file.Close()); err != nil {
		return 0, fmt.Errorf("save the archive: %w", err)
	}
	if err := a.vacant(); err != nil { // again: it may have appeared meanwhile
		return 0, err
	}
	if err := os.Rename(a.file.Name(), a.name); err != nil {
		return 0, fmt.Errorf("save the archive: %w", err)
	}
	return size, nil
}

// discard removes an archive that is not finished.
func (a *archive) discard() {
	_ = a.file.Close()
	_ = os.Remove(a.file.Name()) // it is gone if it was finished
}
