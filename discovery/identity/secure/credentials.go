package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Protocol is the ALPN name that gRPC clients offer.
const Protocol = "h2"

// Credentials returns the credentials of a gRPC server for the connections of a Listener, and
// of listeners without TLS beside it. The AuthInfo of a TLS connection is a
// credentials.TLSInfo. A connection ends when its client exceeds the bounds.
func Credentials(bounds Streams) credentials.TransportCredentials {
	return transport{insecure.NewCredentials(), bounds}
}

// transport uses the handshakes that a Listener has completed.
type transport struct {
	plain  credentials.TransportCredentials
	bounds Streams
}

// ServerHandshake implements credentials.TransportCredentials.
func (t transport) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, ok := c.(*tls.Conn)
	if !ok {
		return t.plain.ServerHandshake(t.bounds.limit(c))
	}
	state := secured.ConnectionState()
	if state.NegotiatedProtocol != Protocol {
		_ = secured.Close()
		return nil, nil, errors.New("the client offers no h2 by ALPN, which gRPC requires")
	}
	info := credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	if peer := Peer(&state); peer != nil && len(peer.URIs) == 1 {
		info.SPIFFEID = peer.URIs[0]
	}
	return t.bounds.limit(secured), info, nil
}

// ClientHandshake implements credentials.TransportCredentials. A server has none.
func (t transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a server")
}

// Info implements credentials.TransportCredentials.
func (t transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials {
	return transport{t.plain.Clone(), t.bounds}
}

// OverrideServerName implements credentials.TransportCredentials. A server has no use for it.
func (t transport) OverrideServerName(string) error { return nil }
