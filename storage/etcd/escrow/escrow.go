package escrow

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Keys are what a server needs besides its store: without them nobody can open the secrets
// in it, such as the root of the mesh, and former members do not know a restored one.
type Keys struct {
	// SealingKeys is the content of the file of sealing keys; empty for none.
	SealingKeys []byte `json:"sealingKeys,omitempty"`
	// Authority is the certificate of the authority of the store's members, and AuthorityKey
	// its key, in PEM; empty where the server has none of its own.
	Authority    []byte `json:"authority,omitempty"`
	AuthorityKey []byte `json:"authorityKey,omitempty"`
}

// String shows none of the keys.
func (k Keys) String() string { return "keys of a store" }

// A Lock wraps the keys of a backup.
type Lock struct {
	// kind says how the key that wraps is derived from the secret.
	kind   string
	secret []byte
}

// The kinds of locks.
const (
	lockPassphrase = "argon2id"    // RFC 9106, its second recommended set of parameters
	lockKeyFile    = "hkdf-sha256" // RFC 5869
)

// minKey is the least size of a key file in bytes, and of a passphrase in characters.
const minKey = 16

// ErrLocked is the error of keys that the lock does not open.
var ErrLocked = errors.New("the keys in the backup cannot be opened")

// KeyFile returns the lock of a file of random bytes. File names it in errors.
func KeyFile(file string) (Lock, error) { return readLock(lockKeyFile, file) }

// PassphraseFile returns the lock of the passphrase in a file.
func PassphraseFile(file string) (Lock, error) { return readLock(lockPassphrase, file) }

// Passphrase returns the lock of a passphrase.
func Passphrase(text string) (Lock, error) {
	if len([]rune(text)) < minKey {
		return Lock{}, fmt.Errorf("the passphrase has fewer than %d characters: whoever guesses it has all secrets of the mesh", minKey)
	}
	return Lock{lockPassphrase, []byte(text)}, nil
}

// maxLock bounds the bytes of a file with a key or a passphrase.
const maxLock = 1 << 20

func readLock(kind, file string) (Lock, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Lock{}, err
	}
	switch {
	case info.IsDir():
		return Lock{}, fmt.Errorf("%s: is a directory", file)
	case info.Size() > maxLock:
		return Lock{}, fmt.Errorf("%s: is larger than %d MiB", file, maxLock>>20)
	}
	if others := info.Mode().Perm() & 0o077; others != 0 {
		return Lock{}, fmt.Errorf("%s: others than its owner can use it (mode %04o): chmod 600 %[1]s", file, info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return Lock{}, err
	}
	text = bytes.TrimRight(text, "\r\n")
	if kind == lockPassphrase {
		lock, err := Passphrase(string(text))
		if err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
		return lock, err
	}
	if len(text) < minKey {
		return Lock{}, fmt.Errorf("%s: it has fewer than %d bytes: make one with openssl rand -hex 32", file, minKey)
	}
	return Lock{kind, text}, nil
}

// key derives the key that wraps.
func (l Lock) key(salt []byte) ([]byte, error) {
	if l.kind == lockPassphrase {
		return argon2.IDKey(l.secret, salt, 3, 64<<10, 4, 32), nil
	}
	return hkdf.Key(sha256.New, l.secret, salt, "portolan backup keys", 32)
}

// Envelope is what a backup has besides the snapshot. It says of a backup without keys that
// it has none.
type Envelope struct {
	Version int `json:"version"`
	// Lock is the kind of the lock, empty for a backup without keys.
	Lock   string `json:"lock,omitempty"`
	Salt   []byte `json:"salt,omitempty"`
	Sealed []byte `json:"sealed,omitempty"` // a nonce, and the keys by AES-256-GCM
}

// Version is the version of envelopes that this binary writes and reads.
const Version = 1

// WithoutKeys returns the envelope of a backup that has no keys.
func WithoutKeys() *Envelope { return &Envelope{Version: Version} }

// WithKeys returns an envelope with wrapped keys.
func WithKeys(keys Keys, lock Lock) (*Envelope, error) {
	e := &Envelope{Version: Version, Lock: lock.kind, Salt: make([]byte, 16)}
	_, _ = rand.Read(e.Salt) // never fails
	plain, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	aead, err := lock.aead(e.Salt)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce)
	e.Sealed = aead.Seal(nonce, nonce, plain, []byte(e.Lock))
	return e, nil
}

func (l Lock) aead(salt []byte) (cipher.AEAD, error) {
	key, err := l.key(salt)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// HasKeys says whether there are keys; nil has none.
func (e *Envelope) HasKeys() bool { return e != nil && e.Lock != "" }

// Open unwraps the keys. Keys that the lock does not open are an ErrLocked.
func (e *Envelope) Open(lock Lock) (Keys, error) {
	var keys Keys
	if lock.kind != e.Lock {
		named := strings.NewReplacer(lockPassphrase, "a passphrase", lockKeyFile, "a key file")
		return keys, fmt.Errorf("%w with %s: they were wrapped by %s", ErrLocked, named.Replace(lock.kind), named.Replace(e.Lock))
	}
	aead, err := lock.aead(e.Salt)
	if err != nil {
		return keys, err
	}
	if len(e.Sealed) < aead.NonceSize() {
		return keys, fmt.Errorf("%w: they are damaged", ErrLocked)
	}
	plain, err := aead.Open(nil, e.Sealed[:aead.NonceSize()], e.Sealed[aead.NonceSize():], []byte(e.Lock))
	if err != nil {
		return keys, fmt.Errorf("%w: it is another passphrase, or another key file", ErrLocked)
	}
	if err := json.Unmarshal(plain, &keys); err != nil {
		return Keys{}, fmt.Errorf("%w: they are of another version", ErrLocked)
	}
	return keys, nil
}
