package join

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
)

// Prefix begins every join token.
const Prefix = "pjt_"

const (
	secretBytes = 32 // 256 bits
	nameBytes   = 10
)

var encoding = invitation.Encoding

var (
	secretLength = encoding.EncodedLen(secretBytes)
	nameLength   = encoding.EncodedLen(nameBytes)
	maxToken     = len(Prefix) + validation.DNS1123LabelMaxLength + 1 + nameLength + 1 + secretLength
)

// newToken returns the text of a new token, and the name of its object.
func newToken(prefix, namespace string) (token, name string) {
	random := make([]byte, nameBytes+secretBytes)
	_, _ = rand.Read(random) // never fails
	name = encoding.EncodeToString(random[:nameBytes])
	return prefix + namespace + "_" + name + "_" + encoding.EncodeToString(random[nameBytes:]), name
}

// hash returns the form in which a token is stored.
func hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// Is says whether a text has the prefix of a join token.
func Is(text string) bool { return strings.HasPrefix(text, Prefix) }

// Parse returns the namespace and name of a token's object. The token may have a pin. ok is
// false if the text cannot be a token.
func Parse(token string) (namespace, name string, ok bool) {
	token, _ = invitation.Unpin(token)
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

// encodes says whether a text encodes exactly size bytes.
func encodes(text string, size int) bool {
	decoded, err := encoding.DecodeString(text)
	return err == nil && len(decoded) == size && encoding.EncodeToString(decoded) == text
}
