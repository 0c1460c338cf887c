package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
)

// listenXDSSocket opens the socket for proxies of this machine; nil if no option names one.
func (o *Options) listenXDSSocket() (net.Listener, error) {
	if o.XDSSocket == "" {
		return nil, nil
	}
	path, err := filepath.Abs(o.XDSSocket)
	if err != nil {
		return nil, fmt.Errorf("--xds-socket: %w", err)
	}
	l, err := socket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("--xds-socket: %w", err)
	}
	return &peerListener{Listener: l, path: path, logger: o.log(loglevel.XDS)}, nil
}

// peerListener accepts connections of the user who runs the server, and of root. It closes
// others.
type peerListener struct {
	net.Listener
	path     string
	accepted atomic.Int64
	logger   *slog.Logger
}

// Accept implements net.Listener.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, told := socket.PeerOf(socket.WithPeer(context.Background(), c))
		if told && (peer.UID == os.Geteuid() || peer.UID == 0) || !told && !socket.CanTellPeers { // on systems that cannot tell, only the mode of the socket protects it
			return peerConn{c, &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("%s#%d", l.path, l.accepted.Add(1))}}, nil
		}
		_ = c.Close()
		l.logger.Warn("refusing a connection", "port", "--xds-socket", "user", peer.UID, "err", "the socket is for the user who runs the server")
	}
}

// peerConn is a connection over a socket. Its client has an address of its own, by which
// the connection is found.
type peerConn struct {
	net.Conn
	remote net.Addr
}

// RemoteAddr implements net.Conn.
func (c peerConn) RemoteAddr() net.Addr { return c.remote }
