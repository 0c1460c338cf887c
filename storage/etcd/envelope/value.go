package envelope

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// magic begins every value: three letters and a format byte. The byte lets the encoding
// change value by value.
var magic = []byte("ptl\x01")

// Encode returns the value of a message: the magic, then the message. Equal
// messages give equal bytes within one binary.
func Encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(bytes.Clone(magic), m)
}

// Decode is the inverse of Encode.
func Decode(value []byte, into proto.Message) error {
	body, ok := bytes.CutPrefix(value, magic)
	if !ok {
		return fmt.Errorf("it does not begin with %q", magic)
	}
	return proto.Unmarshal(body, into)
}
