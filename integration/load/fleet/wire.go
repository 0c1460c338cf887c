package fleet

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/integration/load/raw"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// The types that a proxy requests.
const (
	ClusterType     = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType    = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType    = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType       = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	VirtualHostType = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	SecretType      = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	ExtensionType   = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
)

// methods are the methods of ADS.
var methods = map[protocol.Variant]string{
	protocol.StateOfTheWorld: "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
	protocol.Delta:           "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
}

// fields are the numbers of the fields of requests and responses in a variant; 0 if the variant
// has no such field.
type fields struct {
	// of a request
	node, typeURL, subscribe, unsubscribe, initial, version, nonce protowire.Number
	// of a response
	resources, removed, fromType, fromVersion, fromNonce protowire.Number
	// of an entry of resources: where its name, version and body are
	name, entryVersion, body protowire.Number
}

var fieldsOf = map[protocol.Variant]fields{
	protocol.StateOfTheWorld: {
		node: 2, typeURL: 4, subscribe: 3, version: 1, nonce: 5,
		resources: 2, fromType: 4, fromVersion: 1, fromNonce: 5,
	},
	protocol.Delta: {
		node: 1, typeURL: 2, subscribe: 3, unsubscribe: 4, initial: 5, nonce: 6,
		resources: 2, removed: 6, fromType: 4, fromVersion: 1, fromNonce: 5,
		name: 3, entryVersion: 1, body: 2,
	},
}

// response is a response as received. Its fields point into the bytes.
type response struct {
	typeURL, version, nonce string
	bytes                   []byte
}

// readResponse parses the fields that differ from stream to stream.
func readResponse(bytes []byte, at fields) (response, error) {
	r := response{bytes: bytes}
	err := raw.Each(bytes, func(n protowire.Number, content []byte) {
		switch n {
		case at.fromType:
			r.typeURL = string(content)
		case at.fromVersion:
			r.version = string(content)
		case at.fromNonce:
			r.nonce = string(content)
		}
	})
	if err != nil {
		return r, fmt.Errorf("a response cannot be read: %w", err)
	}
	return r, nil
}

// appendNames appends a field for each name.
func appendNames(to []byte, number protowire.Number, names []string) []byte {
	for _, name := range names {
		to = raw.AppendText(to, number, name)
	}
	return to
}
