// Package bootstrap makes the initial configuration of an Envoy, or of a gRPC client
// without one ([GRPC]): its identity, and the address of the control plane. [Build]
// makes the message from plain [Options]; [YAML] and [JSON] render it for `envoy -c`.
// discovery.ParseProxy reads the proxy's description of itself when the proxy connects.
//
// The number of worker threads is no part of Envoy's configuration: it is the option
// --concurrency of its command line.
package bootstrap
