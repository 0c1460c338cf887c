package call

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

// UntrustedError is the error of a server whose certificate no trusted authority signed.
type UntrustedError struct {
	cause x509.UnknownAuthorityError
	roots string // the file of the authorities that are trusted; empty for those of the system
	do    string
}

// Untrusted says whether a call failed because no trusted authority signed the
// certificate of the server.
func Untrusted(err error) bool {
	var e *UntrustedError
	return errors.As(err, &e)
}

// ExplainUntrusted has the error of an untrusted server, of a call or of a TLS connection, say which
// authorities are trusted, those in a file, and what to do. It returns any other error as it is.
func ExplainUntrusted(err error, roots, do string) error {
	var e *UntrustedError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &e):
		e.roots, e.do = roots, do
	case errors.As(err, &unknown):
		return &UntrustedError{unknown, roots, do}
	}
	return err
}

// Error implements error.
func (e *UntrustedError) Error() string {
	out := "its certificate is of no authority that is trusted here"
	if e.roots != "" {
		out += "; " + e.roots + " has " + fingerprints(e.roots)
	}
	if c := e.cause.Cert; c != nil {
		of := fmt.Sprintf("%q", c.Subject.String())
		if len(c.URIs) > 0 {
			of = c.URIs[0].String()
		}
		return fmt.Sprintf("%s: %s (the certificate is that of %s, by the issuer %q)", out, e.do, of, c.Issuer)
	}
	return out + ": " + e.do
}

// Unwrap returns the cause.
func (e *UntrustedError) Unwrap() error { return e.cause }

// fingerprints names the certificates in a file, as portolan ca status does.
func fingerprints(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "no roots that can be read"
	}
	var out []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		sum := sha256.Sum256(block.Bytes)
		out = append(out, hex.EncodeToString(sum[:]))
	}
	if len(out) == 0 {
		return "no roots"
	}
	return "those with sha256 " + strings.Join(out, ", ")
}
