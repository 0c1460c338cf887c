package etcd

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// The classes of a Fault. Code that walks a tree reports the fault and goes on.
var (
	// ErrForeignKey: the key belongs to no object of a known kind.
	ErrForeignKey = errors.New("not the key of a known object")
	// ErrUnknownKind is an ErrForeignKey: the key may belong to an object of an unknown
	// kind, such as a kind of a newer binary.
	ErrUnknownKind = fmt.Errorf("%w: its kind is unknown", ErrForeignKey)
	// ErrUndecodable: the key is sound, and this binary cannot decode the value.
	ErrUndecodable = errors.New("undecodable value")
)

// Fault says what is wrong with a key or its value. It wraps its Class, one of the
// errors above.
type Fault struct {
	Key string
	// Revision is the mod revision of a value at fault; 0 where the key is at fault.
	Revision int64
	Class    error
	// Why is a detail; it may be empty.
	Why string
}

// Reason is the fault without the key.
func (f *Fault) Reason() string {
	if f.Why == "" {
		return f.Class.Error()
	}
	return f.Class.Error() + ": " + f.Why
}

// Error implements error.
func (f *Fault) Error() string {
	if f.Revision == 0 {
		return fmt.Sprintf("%q: %s", f.Key, f.Reason())
	}
	return fmt.Sprintf("%q at revision %d: %s", f.Key, f.Revision, f.Reason())
}

// Unwrap returns the class.
func (f *Fault) Unwrap() error { return f.Class }

func foreign(key, why string) error { return &Fault{Key: key, Class: ErrForeignKey, Why: why} }

func undecodable(kv *mvccpb.KeyValue, why string) error {
	return &Fault{Key: string(kv.Key), Revision: kv.ModRevision, Class: ErrUndecodable, Why: why}
}
