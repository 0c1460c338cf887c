package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
)

// The tail of a backup stands between etcd's database and the hash: an envelope in JSON,
// zeros, and at the end magic and the length of the JSON. It fills whole pages, so that the
// file is a snapshot for etcd's own tools too, whose database has pages that nobody uses.
const (
	magic    = "portolan backup\n"
	tailPage = 4096
)

func tail(e *escrow.Envelope) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	end := binary.BigEndian.AppendUint64([]byte(magic), uint64(len(text)))
	size := (len(text) + len(end) + tailPage - 1) / tailPage * tailPage
	out := make([]byte, size)
	copy(out, text)
	copy(out[size-len(end):], end)
	return out, nil
}

// enclose puts an envelope between the database and the hash of a verified file.
func enclose(e *escrow.Envelope, file string) (err error) {
	after, err := tail(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, info.Size()-sha256.Size); err != nil {
		return err
	}
	h.Write(after)
	if _, err := f.WriteAt(h.Sum(after), info.Size()-sha256.Size); err != nil {
		return err
	}
	return f.Sync()
}

// readEnvelope returns the envelope of a verified file of a size; nil for a plain snapshot.
func readEnvelope(file string, size int64) (*escrow.Envelope, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	end := make([]byte, len(magic)+8)
	at := size - sha256.Size - int64(len(end))
	if _, err := f.ReadAt(end, at); err != nil || !bytes.HasPrefix(end, []byte(magic)) {
		return nil, nil //nolint:nilerr // too short for one
	}
	length := int64(binary.BigEndian.Uint64(end[len(magic):]))
	if length < 0 || length > at {
		return nil, refused(file, "what it has besides the snapshot is damaged")
	}
	pages := (length + int64(len(end)) + tailPage - 1) / tailPage * tailPage
	text := make([]byte, length)
	if _, err := f.ReadAt(text, max(0, size-sha256.Size-pages)); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	e := &escrow.Envelope{}
	if err := json.Unmarshal(text, e); err != nil {
		return nil, refused(file, "what it has besides the snapshot is damaged: %v", err)
	}
	if e.Version != escrow.Version {
		return nil, refused(file, "it is a backup of format %d, and this version reads %d: use a newer one", e.Version, escrow.Version)
	}
	return e, nil
}
