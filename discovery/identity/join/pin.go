package join

import (
	"crypto/sha256"
	"encoding/pem"
	"strings"
)

// pinMark goes between a token and its pin, which says what the roots of the server are.
const pinMark = "_roots-"

// Pinned is a token with the pin of roots, certificates in PEM; without roots the token alone.
// Whoever uses the token knows the server by it.
func Pinned(token, roots string) string {
	if roots == "" {
		return token
	}
	return token + pinMark + Pin(roots)
}

// Unpin takes a token apart; it has no pin if that is empty.
func Unpin(text string) (token, pin string) {
	token, pin, _ = strings.Cut(text, pinMark)
	return token, pin
}

// Pin is the hash of certificates in PEM, however they are written.
func Pin(roots string) string {
	sum := sha256.New()
	for block, rest := pem.Decode([]byte(roots)); block != nil; block, rest = pem.Decode(rest) {
		one := sha256.Sum256(block.Bytes)
		sum.Write(one[:])
	}
	return encoding.EncodeToString(sum.Sum(nil))
}
