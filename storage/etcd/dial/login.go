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

// login adds the current password to requests for a token. etcd's client requests a
// token when it opens a stream, and when etcd does not know the caller. Two of its
// habits need a false answer in place of etcd's:
//
//   - It requests a token when it is made, and could not be made while etcd is away.
//     Until opened, the answer is that authentication is off.
//     https://github.com/etcd-io/etcd/issues/7747
//   - It calls without a token, and etcd would take it for the user that its certificate
//     names. Until answered, the answer is that a token is missing.
//     https://github.com/etcd-io/etcd/pull/10343
type login struct {
	password func() (string, error)
	opened   atomic.Bool
	// answered says that etcd has answered a request for a token; anonymous, that the
	// answer was that authentication is off.
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
	if l.anonymous.Load() && accessDenied(err) {
		return rpctypes.ErrGRPCUserEmpty // authentication was switched on meanwhile
	}
	return err
}

// ask sends a request for a token, with the password.
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

// accessDenied says that etcd does not know the caller, or does not permit the call.
func accessDenied(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserNotFound)
}
