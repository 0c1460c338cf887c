package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// WriteOptions say how to write a backup.
type WriteOptions struct {
	// Envelope is what the file has besides the snapshot; nil for a plain snapshot.
	Envelope *escrow.Envelope
	// Replace allows Write to replace an existing file of that name.
	Replace bool
	// MinRevision is the lowest revision that the snapshot may have.
	MinRevision int64
	// Schemas are the known kinds: the Summary counts other objects as unreadable.
	Schemas schema.Set
}

// Write puts a snapshot and its envelope into a file that only this user can read, and returns what is in
// it. It writes a temporary file first: the file appears under its name when it is
// whole, verified and on disk, or not at all.
func Write(from io.Reader, file string, o WriteOptions) (*Summary, error) {
	if err := Vacant(file, o.Replace); err != nil {
		return nil, err
	}
	dir := filepath.Dir(file)
	part, err := os.CreateTemp(dir, "."+filepath.Base(file)+".*.part")
	if err != nil {
		return nil, fmt.Errorf("save the backup: %w", err)
	}
	summary, err := fill(part, from, o)
	if err == nil {
		err = Vacant(file, o.Replace) // again: it may have appeared meanwhile
	}
	if err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(part.Name()))
	}
	if err := syncDir(dir); err != nil {
		return nil, fmt.Errorf("save the backup: %s is written, but may be gone after a power failure: %w", file, err)
	}
	summary.File = file
	return summary, nil
}

// fill writes and closes a file, and reads it back.
func fill(part *os.File, from io.Reader, o WriteOptions) (*Summary, error) {
	_, err := io.Copy(part, from)
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return nil, fmt.Errorf("save the backup: %w", err)
	}
	if _, _, err := verify(part.Name()); err != nil {
		return nil, fmt.Errorf("save the backup: what has arrived is not whole, try again: %w", err)
	}
	if o.Envelope != nil {
		if err := enclose(o.Envelope, part.Name()); err != nil {
			return nil, fmt.Errorf("save the backup: %w", err)
		}
	}
	summary, err := Inspect(part.Name(), o.Schemas)
	if err != nil {
		return nil, fmt.Errorf("save the backup: what has arrived is not whole, try again: %w", err)
	}
	if summary.Revision < o.MinRevision {
		return nil, fmt.Errorf("save the backup: it is of revision %d and lacks writes up to %d: a member of etcd that is behind has answered, try again",
			summary.Revision, o.MinRevision)
	}
	return summary, nil
}

// Vacant says why Write would not put a snapshot under a name; for a file that exists
// the error is an fs.ErrExist.
func Vacant(file string, replace bool) error {
	found, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("save the backup: %w", err)
	case found.IsDir():
		return fmt.Errorf("save the backup: %s is a directory: name a file", file)
	case !replace:
		return fmt.Errorf("save the backup: %s: %w", file, fs.ErrExist)
	}
	return nil
}

// syncDir puts the names in a directory on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
