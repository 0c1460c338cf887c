package join

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix begins every join token.
const Prefix = "pjt_"

const (
	secretBytes = 32 // 256 bits
	nameBytes   = 10
)

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

var (
	secretLength = encoding.EncodedLen(secretBytes)
	nameLength   = encoding.EncodedLen(nameBytes)
	maxToken     = len(Prefix) + validation.DNS1123LabelMaxLength + 1 + nameLength + 1 + secretLength
)

// newToken makes a token of a namespace: its text, and the name of its object.
func newToken(prefix, namespace string) (token, name string) {
	random := make([]byte, nameBytes+secretBytes)
	_, _ = rand.Read(random) // never fails
	name = encoding.EncodeToString(random[:nameBytes])
	return prefix + namespace + "_" + name + "_" + encoding.EncodeToString(random[nameBytes:]), name
}

// hash is what is stored of a token.
func hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// Is says whether a text is meant as a join token.
func Is(text string) bool { return strings.HasPrefix(text, Prefix) }

// Parse returns the namespace and the name of the object of a token, which may have a pin. It
// is false for what cannot be a token.
func Parse(token string) (namespace, name string, ok bool) {
	token, _ = Unpin(token)
	rest, ok := strings.CutPrefix(token, Prefix)
	if !ok || len(token) > maxToken {
		return "", "", false
	}
	parts := strings.Split(rest, "_")
	if len(parts) != 3 || len(validation.IsDNS1123Label(parts[0])) > 0 || !encodes(parts[1], nameBytes) || !encodes(parts[2], secretBytes) {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// encodes says whether a text encodes so many bytes.
func encodes(text string, size int) bool {
	decoded, err := encoding.DecodeString(text)
	return err == nil && len(decoded) == size && encoding.EncodeToString(decoded) == text
}
