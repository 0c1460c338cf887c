package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// ErrNoSnapshot is the error of a file that is no snapshot, or not a whole one.
var ErrNoSnapshot = errors.New("not a whole snapshot")

// A Summary says what is in a snapshot.
type Summary struct {
	// File is the name of the file, and Size its size. Hash is the SHA-256, in
	// hexadecimal, at the end of the file, which matches the content.
	File string `json:"file"`
	Size int64  `json:"size"`
	Hash string `json:"sha256"`
	// Envelope is what the file has besides the snapshot; nil for a plain snapshot.
	Envelope *escrow.Envelope `json:"-"`
	// OpenTokens are the join tokens that can be used once more if the snapshot is restored,
	// in order: NAMESPACE/NAME.
	OpenTokens []string `json:"openTokens,omitempty"`
	// Revision is the revision of the store, and Compacted the oldest that can be read.
	Revision  int64 `json:"revision"`
	Compacted int64 `json:"compacted"`
	// Etcd is the version of etcd's own format, empty before 3.6.
	Etcd string `json:"etcd,omitempty"`
	// Format is the storage format that the snapshot records, 0 if it records none.
	Format int64 `json:"storageFormat,omitempty"`
	// Instance is the id of the store (etcd.InstanceKey).
	Instance string `json:"instance,omitempty"`
	// Keys counts all keys of etcd; of these Objects are configuration and Records
	// history. Other counts the keys that are not Portolan's.
	Keys    int         `json:"keys"`
	Objects []KindCount `json:"objects"`
	Records int         `json:"records"`
	Other   int         `json:"other,omitempty"`
	// Registries are the sources whose last known rows the snapshot has.
	Registries []RegistrySource `json:"registries,omitempty"`
	// First and Last are the times of the oldest and the newest record, zero
	// where there is none.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// RegistrySource is the source of a registry, such as a datacentre of Consul.
type RegistrySource struct {
	Source string `json:"source"`
	// Confirmed is when the source last confirmed the saved rows.
	Confirmed time.Time `json:"confirmed"`
}

// KindCount is the number of objects of a kind. This binary does not know the kind of
// Unreadable of them, or cannot decode them.
type KindCount struct {
	Group      string `json:"group"`
	Kind       string `json:"kind"`
	Count      int    `json:"count"`
	Unreadable int    `json:"unreadable,omitempty"`
}

// Count is the number of all objects.
func (s *Summary) Count() int {
	n := 0
	for _, k := range s.Objects {
		n += k.Count
	}
	return n
}

// Inspect reads a snapshot, whole, and says what is in it. A file that was cut,
// changed, or is something else is an ErrNoSnapshot.
func Inspect(file string, schemas schema.Set) (*Summary, error) {
	size, hash, err := verify(file)
	if err != nil {
		return nil, err
	}
	envelope, err := readEnvelope(file, size)
	if err != nil {
		return nil, err
	}
	s := &Summary{File: file, Size: size, Hash: hash, Envelope: envelope}
	if err := readDatabase(file, func(tx *bolt.Tx) error { return s.read(tx, schemas) }); err != nil {
		return nil, err
	}
	return s, nil
}

// refused is the error of a file that is no snapshot.
func refused(file, format string, args ...any) error {
	return fmt.Errorf("%s: %w: "+format, append([]any{file, ErrNoSnapshot}, args...)...)
}

// sector divides the size of every etcd database, so a remainder tells whether a hash
// follows.
const sector = 512

// verify compares the content of a file with the hash at its end.
func verify(file string) (size int64, hash string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	switch size = info.Size(); {
	case !info.Mode().IsRegular():
		return 0, "", refused(file, "it is no regular file")
	case size == 0:
		return 0, "", refused(file, "it is empty")
	case size%sector == 0:
		return 0, "", refused(file, "no hash follows its content: it was cut, or is a copy of a data directory's database, which may be torn: make one with portolan store backup")
	case size%sector != sha256.Size:
		return 0, "", refused(file, "its size of %d bytes is that of no snapshot: it was cut, or is something else", size)
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, size-sha256.Size); err != nil {
		return 0, "", fmt.Errorf("read %s: %w", file, err)
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(f, want); err != nil {
		return 0, "", fmt.Errorf("read %s: %w", file, err)
	}
	if got := h.Sum(nil); !bytes.Equal(got, want) {
		return 0, "", refused(file, "its content has the hash %x, and the hash at its end is %x: it was changed, cut, or is something else", got, want)
	}
	return size, hex.EncodeToString(want), nil
}

// readDatabase reads a database whose bytes are as etcd sent them. If the database was
// damaged before, bbolt may panic or fault.
// https://github.com/etcd-io/bbolt/issues/105
func readDatabase(file string, read func(*bolt.Tx) error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if v := recover(); v != nil {
			err = refused(file, "its database is damaged: %v", v)
		}
	}()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return refused(file, "its database cannot be opened: %v", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.View(walk); err != nil {
		return refused(file, "%v", err)
	}
	if err := db.View(read); err != nil {
		return refused(file, "its database cannot be read: %v", err)
	}
	return nil
}

// walk visits everything in the database. bbolt's own check would do so on a goroutine
// of its own, where a panic ends the process.
// https://github.com/etcd-io/bbolt/pull/1164
func walk(tx *bolt.Tx) error {
	return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		return bucket.ForEach(func(_, value []byte) error {
			if value == nil {
				return fmt.Errorf("its table %q holds another: it is not etcd's", name)
			}
			return nil
		})
	})
}
