package invitation

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/pem"
	"strings"
)

// Encoding is the base32 of tokens and pins: letters and digits that no shell and no URL changes.
var Encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// pinMark separates a token from its pin, the hash of the server's roots.
const pinMark = "_roots-"

// Pinned returns a token with the pin of the roots, which are certificates in PEM. Without
// roots it returns the token alone. Whoever uses the token recognizes the server by the pin.
func Pinned(token, roots string) string {
	if roots == "" {
		return token
	}
	return token + pinMark + Pin(roots)
}

// Unpin splits a text into token and pin; the pin is empty if there is none.
func Unpin(text string) (token, pin string) {
	token, pin, _ = strings.Cut(text, pinMark)
	return token, pin
}

// Pin returns the hash of certificates in PEM, independent of how the PEM is written.
func Pin(roots string) string {
	sum := sha256.New()
	for block, rest := pem.Decode([]byte(roots)); block != nil; block, rest = pem.Decode(rest) {
		one := sha256.Sum256(block.Bytes)
		sum.Write(one[:])
	}
	return Encoding.EncodeToString(sum.Sum(nil))
}
