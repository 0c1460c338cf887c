package etcd

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Why a key or its value is not one of an object. Whoever walks a tree reports
// it and goes on. The errors are *Fault.
var (
	// ErrForeignKey: the key is not that of an object of a kind known here.
	ErrForeignKey = errors.New("not the key of a known object")
	// ErrUnknownKind is the ErrForeignKey of a key that may be that of an object
	// of another kind, such as one of a newer binary.
	ErrUnknownKind = fmt.Errorf("%w: its kind is unknown", ErrForeignKey)
	// ErrUndecodable: the key is good, and the value not one that this binary can
	// read.
	ErrUndecodable = errors.New("undecodable value")
)

// Fault is what is wrong with a key of the configuration tree. It wraps its
// Class, one of the errors above.
type Fault struct {
	Key string
	// Revision is the mod revision of a value that is at fault, 0 where the key
	// is.
	Revision int64
	Class    error
	// Why says more than the class, where there is more to say.
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
