package seal

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keySize is the size of sealing keys and of data keys, in bytes.
const keySize = 32

type key struct {
	id     string
	secret [keySize]byte
}

// Ring is an immutable set of sealing keys, in the order in which they were added. The
// zero Ring has none.
type Ring struct{ keys []key }

// WithNew returns a ring with one more key, which is random, and the id of that key.
func (r Ring) WithNew() (Ring, string) {
	var k key
	_, _ = rand.Read(k.secret[:]) // never fails
	k.id = idOf(k.secret)
	return Ring{append(slices.Clip(r.keys), k)}, k.id
}

// With returns a ring that has the keys of both.
func (r Ring) With(other Ring) Ring {
	out := Ring{slices.Clip(r.keys)}
	for _, k := range other.keys {
		if !out.Has(k.id) {
			out.keys = append(out.keys, k)
		}
	}
	return out
}

// IDs returns the ids of the keys, in their order.
func (r Ring) IDs() []string {
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.id
	}
	return ids
}

// Has says whether the ring has a key.
func (r Ring) Has(id string) bool { return r.find(id) != nil }

// String and GoString show only the ids of the keys, so that no log has the keys.
func (r Ring) String() string { return fmt.Sprint(r.IDs()) }

// GoString is String.
func (r Ring) GoString() string { return r.String() }

func (r Ring) find(id string) *key {
	for i := range r.keys {
		if r.keys[i].id == id {
			return &r.keys[i]
		}
	}
	return nil
}

// idOf hashes the secret, so that servers use the same id for the same key, and the id
// does not reveal the key.
func idOf(secret [keySize]byte) string {
	sum := sha256.Sum256(append([]byte("portolan sealing key id\n"), secret[:]...))
	return hex.EncodeToString(sum[:6])
}

// prefix begins the line of a key in a file.
const prefix = "portolan-sealing-key-1:"

// Text returns the content of the file of a ring: a line for each key.
func (r Ring) Text() []byte {
	var out bytes.Buffer
	out.WriteString("# Sealing keys of Portolan. Whoever has one can open the secrets that it sealed.\n")
	for _, k := range r.keys {
		fmt.Fprintf(&out, "# %s\n%s%s\n", k.id, prefix, base64.RawURLEncoding.EncodeToString(k.secret[:]))
	}
	return out.Bytes()
}

// Parse reads what Text wrote. An error has the number of the line, and none of its
// content.
func Parse(text []byte) (Ring, error) {
	var out Ring
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		encoded, ok := strings.CutPrefix(line, prefix)
		secret, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
		if !ok || err != nil || len(secret) != keySize {
			return Ring{}, fmt.Errorf("line %d is no sealing key: one begins with %s and has 43 characters more", n, prefix)
		}
		k := key{secret: [keySize]byte(secret)}
		k.id = idOf(k.secret)
		out = out.With(Ring{[]key{k}})
	}
	if err := lines.Err(); err != nil {
		return Ring{}, fmt.Errorf("it is no file of sealing keys: %w", err)
	}
	return out, nil
}

// Read reads the file of a ring. The error is an fs.ErrNotExist if there is none. Read
// refuses a file that others than its owner may use.
func Read(file string) (Ring, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Ring{}, err
	}
	if others := info.Mode().Perm() & 0o077; others != 0 {
		return Ring{}, fmt.Errorf("%s: others than its owner can use it (mode %04o), and sealing keys open all secrets: chmod 600 %[1]s", file, info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return Ring{}, err
	}
	ring, err := Parse(text)
	if err != nil {
		return Ring{}, fmt.Errorf("%s: %w", file, err)
	}
	if len(ring.keys) == 0 {
		return Ring{}, fmt.Errorf("%s: it has no sealing key", file)
	}
	return ring, nil
}

// Write writes the file of a ring, for its owner alone. It replaces the file atomically:
// once Write returns nil, the new file is on disk, and a crash before leaves the old file
// or the new one.
func (r Ring) Write(file string) (err error) {
	dir := filepath.Dir(file)
	next, err := os.CreateTemp(dir, ".sealing-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(next.Name())
		}
	}()
	if _, err = next.Write(r.Text()); err == nil {
		err = next.Sync()
	}
	if err = errors.Join(err, next.Close()); err != nil {
		return err
	}
	if err = os.Rename(next.Name(), file); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// IsMissing says whether the error of Read is that there is no file.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
