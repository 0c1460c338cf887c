package peercert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// The files of a directory.
const (
	caFile    = "ca.pem"
	caKeyFile = "ca-key.pem"
	certFile  = "cert.pem"
	keyFile   = "key.pem"
	placeFile = "place.json"
)

// Dir is a directory with the certificate of a member, the authority, and the member's place.
type Dir string

// In returns the directory within the data directory of an embedded store.
func In(dataDir string) Dir { return Dir(filepath.Join(dataDir, "peers")) }

// A Place identifies a member that has joined a store.
type Place struct {
	Name      string `json:"name"`
	PeerURL   string `json:"peerUrl"`
	ClientURL string `json:"clientUrl"`
	// Join are the client URLs of the members that it joined.
	Join []string `json:"join"`
}

// Place returns the place of a member that has joined a store; nil for another member.
func (d Dir) Place() (*Place, error) {
	text, err := os.ReadFile(d.file(placeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &Place{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: %w", d.file(placeFile), err)
	}
	return p, nil
}

// Key returns the key of the member. It makes and stores one if there is none, so a
// machine that asks to join twice does so with the same key.
func (d Dir) Key() (*ecdsa.PrivateKey, error) {
	key, err := readKey(d.file(keyFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	return key, d.writeKey(keyFile, key)
}

// Join stores what a joining member was given. It writes the place last: from then on
// the member has joined.
func (d Dir) Join(p Place, certificate, authority, authorityKey []byte) error {
	place, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{caFile, authority}, {caKeyFile, authorityKey}, {certFile, certificate}, {placeFile, place}} {
		if err := d.write(f.name, f.content); err != nil {
			return err
		}
	}
	return nil
}

// Authority returns the authority of the members and its key, in PEM; both nil if the
// directory has none.
func (d Dir) Authority() (certificate, key []byte, err error) {
	if certificate, err = os.ReadFile(d.file(caFile)); err == nil {
		key, err = os.ReadFile(d.file(caKeyFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	return certificate, key, err
}

// Restore stores the authority of the members in a new directory. The member makes its own
// certificate when it starts.
func (d Dir) Restore(certificate, key []byte) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	return errors.Join(d.write(caFile, certificate), d.write(caKeyFile, key))
}

// files names the certificate files of a member.
func (d Dir) files() dial.Files {
	return dial.Files{CA: d.file(caFile), Cert: d.file(certFile), Key: d.file(keyFile)}
}

func (d Dir) file(name string) string { return filepath.Join(string(d), name) }

// write replaces a file, readable by this user only.
func (d Dir) write(name string, content []byte) error {
	return renameio.WriteFile(d.file(name), content, 0o600, renameio.WithTempDir(string(d)), renameio.WithStaticPermissions(0o600))
}

func (d Dir) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return d.write(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func readKey(file string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseKey(text, file)
}

func parseKey(text []byte, from string) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no key in PEM", from)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s has no key that can be used", from)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s has a key that is not of ECDSA", from)
	}
	return private, nil
}

func readCertificate(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

func inPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
