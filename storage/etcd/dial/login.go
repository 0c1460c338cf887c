package dial

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// login tells etcd the password of the moment. The client of etcd asks for a
// token when it opens a stream and when etcd does not take the one it has; it
// would also ask when it is made, and could not be made while etcd is away. That
// is when it is told that there is nothing to ask for: its first call then gets
// it a token.
type login struct {
	password func() (string, error)
	opened   atomic.Bool
}

func (l *login) intercept(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	question, ok := request.(*etcdserverpb.AuthenticateRequest)
	if !ok {
		return invoke(ctx, method, request, answer, conn, opts...)
	}
	if !l.opened.Load() {
		return rpctypes.ErrGRPCAuthNotEnabled
	}
	password, err := l.password()
	if err != nil {
		return status.Error(codes.Unauthenticated, fmt.Sprintf("there is no password to tell etcd: %v", err))
	}
	return invoke(ctx, method, &etcdserverpb.AuthenticateRequest{Name: question.Name, Password: password}, answer, conn, opts...)
}
