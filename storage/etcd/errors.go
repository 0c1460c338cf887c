package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Upper bounds of the bytes of a request beyond its keys and values. requestOverhead
// covers the whole request: the key of its record, the record's own fields and the
// format. operationOverhead covers each operation.
const (
	requestOverhead   = 1024
	operationOverhead = 32
)

// checkCount refuses a batch of more operations than fit one transaction. etcd counts
// the longest of the lists of compares, writes and reads. Every operation takes a
// compare and a read, and so do the history record and the storage format. Deleting an
// object that may have a health takes two writes; a condition on a health takes one more
// compare and read. An object that comes under a lease takes two more writes.
func (s *Store) checkCount(ops []storage.Op) error {
	written, watched := 0, 0
	for _, op := range ops {
		if op.Lease != 0 {
			written += 2
		}
		if op.Verb == storage.Delete && hasHealth(op.Key.Kind) || op.Health != nil {
			written++
		}
		if isWatched(op) {
			watched++
		}
	}
	more := max(written, watched)
	if len(ops)+more <= s.o.MaxTxnOps-2 {
		return nil
	}
	beside := ""
	if more > 0 {
		beside = fmt.Sprintf(", and %d more for the health of workloads and their leases", more)
	}
	return fmt.Errorf("%w: the batch has %d operations%s, and etcd takes %d in one transaction, two of which are the record of history and the storage format: "+
		"apply it in parts, or raise --max-txn-ops of etcd and of this store", storage.ErrTooLarge, len(ops), beside, s.o.MaxTxnOps)
}

// checkAddresses refuses a batch whose hosts get or lose more addresses than fit into
// the transaction beside its steps. Each such host takes two more compares, writes and
// reads. The error names an object that could not be written even alone.
func (s *Store) checkAddresses(steps []plan.Step, more int) error {
	room := s.o.MaxTxnOps - 2
	if more == 0 || len(steps)+more <= room {
		return nil
	}
	var faults *multierror.Error
	for i, step := range steps {
		if n := len(address.Claims(steps[i : i+1])); 1+2*n > room {
			faults = multierror.Append(faults, &storage.OpError{Index: i, Err: fmt.Errorf("%s: %w: spec.hosts: "+
				"%d hosts get or lose an address by one change, and %d are the most, since etcd takes %d operations in one transaction: "+
				"split it into several objects, change it in steps, or raise --max-txn-ops of etcd and of this store",
				step.Key, storage.ErrInvalid, n, (room-1)/2, s.o.MaxTxnOps)})
		}
	}
	if faults != nil {
		return faults
	}
	return fmt.Errorf("%w: the batch has %d operations, and %d more for the addresses of hosts of ServiceEntries, and etcd takes %d in one transaction, "+
		"two of which are the record of history and the storage format: "+
		"apply it in parts, or raise --max-txn-ops of etcd and of this store", storage.ErrTooLarge, len(steps), more, s.o.MaxTxnOps)
}

// recordLimit is the largest value that a record keeps: half a request, since the
// request that replaces a value carries both.
func (s *Store) recordLimit() int { return (s.o.MaxRequestBytes - requestOverhead) / 2 }

// checkSize refuses an object so large that no request could replace it by another of
// its size.
func (s *Store) checkSize(key config.Key, size int) error {
	limit := s.recordLimit() - 4*len(ConfigKey(key)) - 2*operationOverhead
	if size <= limit {
		return nil
	}
	return fmt.Errorf("%s: %w: it takes %d bytes, and %d are the most: etcd takes %d in one request, "+
		"and one that changes an object carries it before and after: "+
		"make it smaller, or, where the etcd is your own, raise its --max-request-bytes and --etcd-max-request-bytes of serve", key, storage.ErrTooLarge, size, limit, s.o.MaxRequestBytes)
}

// checkTotal refuses a batch that no request can carry.
func (s *Store) checkTotal(n, size int) error {
	if size <= s.o.MaxRequestBytes {
		return nil
	}
	return fmt.Errorf("%w: the batch of %d operations takes %d bytes with its record of history, and etcd takes %d in one request: "+
		"apply it in parts, or, where the etcd is your own, raise its --max-request-bytes and --etcd-max-request-bytes of serve", storage.ErrTooLarge, n, size, s.o.MaxRequestBytes)
}

// readError classifies the error of a read.
func (s *Store) readError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("%w: %w", storage.ErrCompacted, err)
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	case tooLarge(err):
		return s.tooLargeError(err)
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, plainError{err})
}

// writeError classifies the error of a transaction that writes. It is a
// storage.ErrOutcomeUnknown unless it proves that nothing was written.
func (s *Store) writeError(err error) error {
	switch {
	case tooLarge(err):
		return s.tooLargeError(err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: nothing was written: the quota of etcd is used up: the embedded store makes room by itself where it can; "+
			"compact any other, defragment it and disarm its alarm: %w", storage.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w: etcd does not let this user write: %w", storage.ErrReadOnly, err)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: nothing was written: the lease has ended: %w", storage.ErrNotFound, plainError{err})
	case errors.Is(err, storage.ErrReadOnly): // from a fenced client
		return fmt.Errorf("nothing was written: %w", err)
	case refused(err), unsent(err):
		return fmt.Errorf("%w: nothing was written: %w", storage.ErrUnavailable, plainError{err})
	}
	return fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, plainError{err})
}

// notSent is the error text by which etcd's client says that it did not send a request.
// Our interceptors that refuse requests use it too.
const notSent = "there is no connection available"

// plainError is an error of gRPC without its code and without notSent.
type plainError struct{ err error }

func (e plainError) Error() string {
	return strings.TrimPrefix(status.Convert(e.err).Message(), notSent+": ")
}

// Unwrap returns the error as it was.
func (e plainError) Unwrap() error { return e.err }

// tooLarge recognises the errors of etcd, and of gRPC at either end, by their text. The
// error is always about the request: the response to a write is small.
func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || containsAny(err.Error(), wordsOfTooLarge)
}

// The words by which errors are recognised. A test compares them with the sources.
var (
	wordsOfTooLarge = []string{"request is too large", "message larger than max"}
	wordsOfUnsent   = []string{"there is no address available", notSent, "Error while dialing", "authentication handshake failed"}
)

func containsAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

func (s *Store) tooLargeError(err error) error {
	return fmt.Errorf("%w: etcd takes less than the %d operations and %d bytes in one request that this store was told: %w",
		storage.ErrTooLarge, s.o.MaxTxnOps, s.o.MaxRequestBytes, err)
}

// refused says that the server answered without beginning the transaction, or that the
// request had no credentials.
func refused(err error) bool {
	var answer rpctypes.EtcdError
	if status.Code(err) == codes.Unauthenticated {
		return true
	}
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code() {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unauthenticated:
		return true
	}
	return errors.Is(err, rpctypes.ErrTooManyRequests) || errors.Is(err, rpctypes.ErrNoLeader)
}

// unsent says that the request did not leave this process. Only the text of gRPC's error
// shows it: etcd's client checks the first two, gRPC writes the others when it cannot
// connect.
func unsent(err error) bool {
	answer, ok := status.FromError(err)
	if !ok || answer.Code() != codes.Unavailable || errors.Is(err, context.Canceled) {
		return false
	}
	return containsAny(answer.Message(), wordsOfUnsent)
}
