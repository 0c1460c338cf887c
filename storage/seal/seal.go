package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// Box is a sealed value.
type Box struct {
	// Key is the id of the sealing key.
	Key string `json:"key"`
	// DataKey is the sealed data key, and Value the value that the data key has sealed.
	DataKey []byte `json:"dataKey"`
	Value   []byte `json:"value"`
}

// UnknownKeyError says that a ring lacks the key that sealed a value.
type UnknownKeyError struct{ ID string }

// Error implements error.
func (e *UnknownKeyError) Error() string { return fmt.Sprintf("sealing key %s is not here", e.ID) }

// ErrDamaged is the error of a Box that was changed, or is of another context.
var ErrDamaged = errors.New("the sealed value is damaged, or was moved here from another object")

// Seal seals a value under a key of the ring. Equal values have different boxes.
func (r Ring) Seal(id string, value, context []byte) (Box, error) {
	var data [keySize]byte
	_, _ = rand.Read(data[:]) // never fails
	return r.box(id, data, sealer(data).Seal(nil, nil, value, context), context)
}

// box makes the Box of a value that a data key has sealed.
func (r Ring) box(id string, data [keySize]byte, sealed, context []byte) (Box, error) {
	k := r.find(id)
	if k == nil {
		return Box{}, &UnknownKeyError{id}
	}
	return Box{Key: id, DataKey: sealer(k.secret).Seal(nil, nil, data[:], keyContext(context)), Value: sealed}, nil
}

// Open returns the value of a Box. The error is an UnknownKeyError or ErrDamaged.
func (r Ring) Open(b Box, context []byte) ([]byte, error) {
	data, err := r.dataKey(b, context)
	if err != nil {
		return nil, err
	}
	value, err := sealer(data).Open(nil, nil, b.Value, context)
	if err != nil {
		return nil, ErrDamaged
	}
	return value, nil
}

// Reseal returns a Box of the same value whose data key another key of the ring seals.
func (r Ring) Reseal(b Box, id string, context []byte) (Box, error) {
	if _, err := r.Open(b, context); err != nil {
		return Box{}, err
	}
	data, err := r.dataKey(b, context)
	if err != nil {
		return Box{}, err
	}
	return r.box(id, data, b.Value, context)
}

func (r Ring) dataKey(b Box, context []byte) (data [keySize]byte, err error) {
	k := r.find(b.Key)
	if k == nil {
		return data, &UnknownKeyError{b.Key}
	}
	opened, err := sealer(k.secret).Open(nil, nil, b.DataKey, keyContext(context))
	if err != nil || len(opened) != keySize {
		return data, ErrDamaged
	}
	return [keySize]byte(opened), nil
}

// keyContext returns the context of a value's data key. It differs from the value's, so
// that neither can replace the other.
func keyContext(context []byte) []byte { return append([]byte("data key of "), context...) }

// sealer returns AES-256-GCM with random nonces, which precede the ciphertext.
func sealer(secret [keySize]byte) cipher.AEAD {
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // the key has the right size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the right block size
	}
	return aead
}
