package dial

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// login tells etcd the password of the moment. The client of etcd asks for a
// token when it opens a stream, and when etcd says that it does not know who
// asks. It would also ask when it is made, and could not be made while etcd is
// away: then it is told that there is nothing to ask for (opened). Nor may it
// call etcd without a token, since etcd would take it for the user that its
// certificate is of: until there was an answer it is told, in place of etcd, to
// ask for one first.
type login struct {
	password func() (string, error)
	opened   atomic.Bool
	// answered says that etcd has answered a question for a token; with none where
	// it does not ask who its clients are (anonymous).
	answered, anonymous atomic.Bool
}

func (l *login) intercept(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	question, ok := request.(*etcdserverpb.AuthenticateRequest)
	switch {
	case ok && !l.opened.Load():
		return rpctypes.ErrGRPCAuthNotEnabled
	case ok:
		return l.ask(question.Name, func(question *etcdserverpb.AuthenticateRequest) error {
			return invoke(ctx, method, question, answer, conn, opts...)
		})
	case !l.answered.Load():
		return rpctypes.ErrGRPCUserEmpty
	}
	err := invoke(ctx, method, request, answer, conn, opts...)
	if l.anonymous.Load() && strange(err) {
		return rpctypes.ErrGRPCUserEmpty // etcd has begun to ask
	}
	return err
}

// ask asks for a token, once there is a password.
func (l *login) ask(user string, send func(*etcdserverpb.AuthenticateRequest) error) error {
	password, err := l.password()
	if err != nil {
		return status.Error(codes.Unauthenticated, fmt.Sprintf("there is no password to tell etcd: %v", err))
	}
	err = send(&etcdserverpb.AuthenticateRequest{Name: user, Password: password})
	none := errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled)
	l.anonymous.Store(none)
	if err == nil || none {
		l.answered.Store(true)
	}
	return err
}

// strange says that etcd does not know who asked, or not as one who may.
func strange(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserNotFound)
}
