package escrow_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
)

var keys = escrow.Keys{SealingKeys: []byte("sealing"), Authority: []byte("certificate"), AuthorityKey: []byte("private")}

// file writes a file for its owner alone.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lockOf(t *testing.T, open func(string) (escrow.Lock, error), text string) escrow.Lock {
	t.Helper()
	lock, err := open(text)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// TestOnlyItsLockOpensAnEnvelope: the keys come back as they were with the same secret, and
// with nothing else.
func TestOnlyItsLockOpensAnEnvelope(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	for name, wrapping := range map[string]escrow.Lock{
		"key file": lockOf(t, escrow.KeyFile, file(t, secret+"\n")), "passphrase": lockOf(t, escrow.Passphrase, secret),
	} {
		e, err := escrow.WithKeys(keys, wrapping)
		if err != nil || !e.HasKeys() {
			t.Fatalf("%s: %+v, %v", name, e, err)
		}
		for _, text := range []string{"sealing", "certificate", "private"} {
			if bytes.Contains(e.Sealed, []byte(text)) {
				t.Errorf("%s: the envelope shows %q", name, text)
			}
		}
		if got, err := e.Open(wrapping); err != nil || !bytes.Equal(got.SealingKeys, keys.SealingKeys) || !bytes.Equal(got.AuthorityKey, keys.AuthorityKey) {
			t.Errorf("%s: %v", name, err)
		}
		for other, lock := range map[string]escrow.Lock{
			"another key file": lockOf(t, escrow.KeyFile, file(t, "another "+secret)), "another passphrase": lockOf(t, escrow.Passphrase, "another "+secret),
		} {
			if _, err := e.Open(lock); !errors.Is(err, escrow.ErrLocked) {
				t.Errorf("%s, opened with %s: %v", name, other, err)
			}
		}
		for at := range e.Sealed {
			damaged := *e
			damaged.Sealed = bytes.Clone(e.Sealed)
			damaged.Sealed[at] ^= 1
			if name == "passphrase" && at > 0 { // an argon2 each is slow
				continue
			}
			if _, err := damaged.Open(wrapping); !errors.Is(err, escrow.ErrLocked) {
				t.Errorf("%s: with byte %d changed: %v", name, at, err)
			}
		}
	}
	if escrow.WithoutKeys().HasKeys() || (*escrow.Envelope)(nil).HasKeys() {
		t.Error("there are keys where none are")
	}
	if text := fmt.Sprintf("%v %+v", keys, keys); strings.Contains(text, "private") {
		t.Errorf("a log would show %s", text)
	}
}

func TestBadLocks(t *testing.T) {
	t.Parallel()
	open := file(t, "0123456789abcdef")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for words, make := range map[string]func() (escrow.Lock, error){
		"chmod 600":           func() (escrow.Lock, error) { return escrow.KeyFile(open) },
		"no such file":        func() (escrow.Lock, error) { return escrow.KeyFile(open + "x") },
		"fewer than 16 bytes": func() (escrow.Lock, error) { return escrow.KeyFile(file(t, "short\n")) },
		"fewer than 16 characters": func() (escrow.Lock, error) {
			return escrow.PassphraseFile(file(t, "short\n"))
		},
	} {
		if _, err := make(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
	}
}
