// Package envelope has the messages that storage/etcd stores: configuration objects
// (envelope.proto), the trees beside them (address.proto, health.proto, status.proto),
// the last known rows of registries (registry.proto), history records (history.proto)
// and the storage format (format.proto).
package envelope

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.57.2 generate
