package xdstest

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

// healthType is the type of reports of health, as Istio's agent sends them.
const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// Report reports the health of the client's machine: healthy for codes.OK.
func (c *Client) Report(code codes.Code, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := clientRequest{typeURL: healthType}
	if code != codes.OK {
		q.rejection = &statuspb.Status{Code: int32(code), Message: message} //nolint:gosec // codes are small
	}
	c.send(q)
}

// Say sends a request of a type that asks for nothing, with metadata of the node.
func (c *Client) Say(typeURL string, metadata *structpb.Struct) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(clientRequest{typeURL: typeURL, node: &corev3.Node{Metadata: metadata}})
}
