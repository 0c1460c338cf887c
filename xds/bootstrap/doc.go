// Package bootstrap makes the configuration that an Envoy starts with, or a gRPC
// client without one ([GRPC]): who it is, and where the control plane is that tells
// it everything else. [Build] makes the message from plain [Options]; [YAML] and
// [JSON] render it for `envoy -c`. What the proxy says of itself in it is what
// discovery.ParseProxy reads when the proxy connects.
//
// The number of worker threads is no part of Envoy's configuration: it is the
// option --concurrency of its command line.
package bootstrap
