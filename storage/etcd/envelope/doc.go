// Package envelope is the stored form of a configuration object: the message
// that storage/etcd writes as the value of a key. Its source is
// envelope.proto.
package envelope

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.57.2 generate
