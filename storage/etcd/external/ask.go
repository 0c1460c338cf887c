package external

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage/etcd"
)

// refusalError is an answer in which etcd says why it refuses a call.
type refusalError struct {
	words string
	cause error
	// writes says that only writes are refused.
	writes bool
}

func (e *refusalError) Error() string { return e.words }

func (e *refusalError) Unwrap() error { return e.cause }

// never is always false: no key has a negative version.
var never = clientv3.Compare(clientv3.Version(etcd.MetaPrefix), "<", 0)

// wouldWrite are puts that are never done, one for each tree that the store writes to.
// etcd checks the permissions for both branches of a transaction before it evaluates the
// condition.
var wouldWrite = []clientv3.Op{
	clientv3.OpPut(etcd.MeshPrefix, ""), clientv3.OpPut(etcd.SidePrefix, ""),
}

// readProbe reads one key of the whole tree, which needs the permission to read all of
// it.
func readProbe() clientv3.Op {
	return clientv3.OpGet(etcd.Root, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
}

// ask tests whether the cluster would take a write, without writing: it needs a quorum,
// a user who may read and write, and room. When the cluster answers again, and from
// time to time, ask also checks the versions of its members. The error is a
// *refusalError if the cluster answered.
func (c *Cluster) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, asking{}, true), timeout)
	defer cancel()
	_, err := c.client.Txn(ctx).If(never).Then(wouldWrite...).Else(readProbe()).Commit()
	err = c.refusal(ctx, err)
	var refusal *refusalError
	if err != nil && !errors.As(err, &refusal) {
		c.versions = time.Time{}
		return err
	}
	if now := time.Now(); now.After(c.versions) {
		if old := c.checkVersions(ctx); old != nil {
			return old
		}
		c.versions = now.Add(versionsEvery)
	}
	return err
}

// refusal turns etcd's answer to a probe into a *refusalError, in words for an operator.
// It returns an error that is no answer unchanged.
func (c *Cluster) refusal(ctx context.Context, err error) error {
	user := c.o.Dial.User
	name := fmt.Sprintf("user %q", user)
	if user == "" {
		name = "the user of this certificate"
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return c.denied(ctx, name, err)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return &refusalError{words: fmt.Sprintf("etcd does not know %s by this password", name), cause: err}
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return &refusalError{words: "etcd wants to know who asks: give a user and a password, or a certificate whose common name is a user", cause: err}
	case errors.Is(err, rpctypes.ErrUserNotFound):
		return &refusalError{words: fmt.Sprintf("etcd has no %s", name), cause: err}
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &refusalError{words: "the quota of etcd is used up: compact it, defragment it and disarm its alarm", cause: err, writes: true}
	case status.Code(err) == codes.Unauthenticated:
		return &refusalError{words: status.Convert(err).Message(), cause: err}
	}
	return err
}

// denied finds out whether the user may not read, or only not write.
func (c *Cluster) denied(ctx context.Context, name string, err error) error {
	_, readErr := c.client.Do(ctx, readProbe())
	if errors.Is(readErr, rpctypes.ErrPermissionDenied) {
		return &refusalError{words: fmt.Sprintf("etcd does not let %s read %s: %v", name, etcd.Root, err), cause: err}
	}
	return &refusalError{words: fmt.Sprintf("etcd lets %s read %s but not write there: %v", name, etcd.Root, err), cause: err, writes: true}
}
