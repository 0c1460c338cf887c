package call

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/portolan-mesh/portolan/discovery/access/socket"
)

// privateError says that the server serves a path only on its socket.
type privateError struct {
	error
	socket, server string
}

// Unwrap returns the refusal.
func (e *privateError) Unwrap() error { return e.error }

// asPrivate turns a refusal into a privateError if the server names its socket.
func asPrivate(response *http.Response, refused error) error {
	path, err := url.PathUnescape(response.Header.Get(socket.SocketHeader))
	if err != nil || path == "" || response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized {
		return refused
	}
	return &privateError{refused, path, response.Header.Get(socket.ServerHeader)}
}

// sendPrivate sends the request to the socket of the server that refused it. If the
// server is behind a tunnel, this machine has no such socket, or it belongs to another
// server, which refuses.
func (c *Client) sendPrivate(ctx context.Context, in Request, refused *privateError) (*http.Response, error) {
	// Connect first: without a connection the refusal says what to do.
	connection, err := socket.Dial(ctx, refused.socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w (there is no %s on this machine)", refused.error, refused.socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w (this user may not open it)", refused.error)
	case err != nil:
		return nil, fmt.Errorf("%w (%v)", refused.error, err)
	}
	_ = connection.Close()
	return c.sendBy(ctx, socket.Client(refused.socket), in, refused.server)
}
