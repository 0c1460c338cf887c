// Package envelope is the stored form of what storage/etcd writes: of a
// configuration object (envelope.proto), of what there is beside it (address.proto,
// health.proto, status.proto), of what registries last knew (registry.proto), of a
// record of history (history.proto) and of what the whole store may hold
// (format.proto).
package envelope

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.57.2 generate
