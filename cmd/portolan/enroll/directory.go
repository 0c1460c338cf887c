package enroll

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
)

// The names of the files in a directory, the same as Istio's.
const (
	ChainFile = "cert-chain.pem"
	KeyFile   = "key.pem"
	RootsFile = "root-cert.pem"

	data    = "..data"
	version = "..certificate-"
)

// Held is the certificate in a directory.
type Held struct {
	Pair tls.Certificate // with its Leaf
	// Since is when the files were written. Authorities backdate certificates for clocks that
	// are slow.
	Since time.Time
}

// Read returns the certificate in a directory. The error wraps fs.ErrNotExist if there is
// none.
func Read(dir string) (Held, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, ChainFile), filepath.Join(dir, KeyFile))
	if err != nil {
		return Held{}, fmt.Errorf("%s: %w", dir, err)
	}
	info, err := os.Stat(filepath.Join(dir, ChainFile))
	if err != nil {
		return Held{}, err
	}
	return Held{pair, info.ModTime()}, nil
}

// write replaces the files of a directory atomically, and creates the directory if necessary.
func write(dir string, key *ecdsa.PrivateKey, got certificate.Certificate) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	next, err := os.MkdirTemp(dir, version)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(next)
		}
	}()
	for name, content := range map[string]string{
		ChainFile: got.Chain, RootsFile: got.Roots, KeyFile: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	} {
		if err := renameio.WriteFile(filepath.Join(next, name), []byte(content), 0o600, renameio.WithTempDir(next)); err != nil {
			return err
		}
	}
	if err := renameio.Symlink(filepath.Base(next), filepath.Join(dir, data)); err != nil {
		return err
	}
	for _, name := range []string{ChainFile, RootsFile, KeyFile} {
		if err := link(filepath.Join(data, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return removeOthers(dir, filepath.Base(next))
}

// link creates a link unless it exists.
func link(to, at string) error {
	if was, err := os.Readlink(at); err == nil && was == to {
		return nil
	}
	return os.Symlink(to, at)
}

// removeOthers removes all versions but the current one.
func removeOthers(dir, current string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), version) && e.Name() != current {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// check returns an error, before any request, if files of that name exist that this package
// did not write.
func check(dir string) error {
	for _, name := range []string{ChainFile, RootsFile, KeyFile} {
		at := filepath.Join(dir, name)
		switch was, err := os.Readlink(at); {
		case errors.Is(err, fs.ErrNotExist), err == nil && was == filepath.Join(data, name):
		default:
			return fmt.Errorf("%s is there already, and is not of a certificate that this program has made: name another directory, or move it away", at)
		}
	}
	return nil
}
