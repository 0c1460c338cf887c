package authority

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"time"
)

// Files are the paths of an operator's authority, in PEM, the same files as Istio's plug-in
// certificates.
type Files struct {
	// Cert is the signing certificate, a root or an intermediate. Key is its private key.
	Cert, Key string
	// Root contains the roots that everybody trusts.
	Root string
	// Chain leads from Cert to a root. It is empty if Cert is a root or signed by one.
	Chain string
}

// fileInterval is how often the files are read again.
const fileInterval = 10 * time.Second

// maxFile bounds the size of a file.
const maxFile = 1 << 20

// Run follows the operator's files until ctx ends, and returns nil then.
func (a *Authority) Run(ctx context.Context) error {
	if a.o.Files == nil {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(fileInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			_ = a.readFiles() // kept in fileFault, which Degraded returns
		}
	}
}

// While an operator replaces the files one by one they may not match; readFiles then
// keeps what it read before.
func (a *Authority) readFiles() error {
	read, err := a.o.Files.read()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && a.fromFiles != nil && maps.EqualFunc(read, a.files, bytes.Equal) {
		a.fileFault = nil
		return nil
	}
	var m *material
	if err == nil {
		m, err = parse(read, a.o.Now())
	}
	if err != nil {
		err = fmt.Errorf("the files of the certificate authority (--ca-cert %s) cannot be used: %w", a.o.Files.Cert, err)
		if a.fromFiles != nil && a.fileFault == nil {
			a.o.Logger.Warn("what the certificate authority had before is used", "err", err)
		}
		a.fileFault = err
		return err
	}
	if a.fromFiles != nil {
		a.o.Logger.Info("the files of the certificate authority have changed", "subject", m.cert.Subject.String(), "ends", m.cert.NotAfter)
	}
	a.files, a.fromFiles, a.fileFault = read, m, nil
	return nil
}

// read reads the files as entries of a Secret.
func (f *Files) read() (map[string][]byte, error) {
	out := map[string][]byte{}
	for entry, path := range map[string]string{caCert: f.Cert, caKey: f.Key, rootCert: f.Root, certChain: f.Chain} {
		if path == "" {
			continue
		}
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		out[entry] = text
	}
	return out, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, err
}
