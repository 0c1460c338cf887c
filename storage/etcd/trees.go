package etcd

import (
	"path"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// meshTrees are the trees under MeshPrefix that this binary knows. A new tree is an entry
// here, and an entry in package cache that holds its values.
var meshTrees = []Tree{
	treeOf(AddressPrefix,
		func(kv *mvccpb.KeyValue, _ schema.Set, _ string) (*address.Assignment, error) {
			return DecodeAddress(kv)
		},
		func(a, b *address.Assignment) bool { return *a == *b }),
	treeOf(ConfigPrefix, Decode, sameObject),
	treeOf(HealthPrefix,
		func(kv *mvccpb.KeyValue, _ schema.Set, _ string) (*health.Report, error) { return DecodeHealth(kv) },
		func(a, b *health.Report) bool { return *a == *b }),
}

// MeshTrees returns the trees under MeshPrefix that this binary knows, in the order
// of their prefixes.
func MeshTrees() []Tree { return slices.Clone(meshTrees) }

// Tree is one tree of etcd. Its values are of one type.
type Tree struct {
	Prefix string
	// Decode decodes the value of a key under Prefix. The error is an ErrForeignKey or
	// an ErrUndecodable.
	Decode func(kv *mvccpb.KeyValue, schemas schema.Set, domain string) (any, error)
	// Same says whether two values are the same state of the same incarnation.
	Same func(a, b any) bool
}

// Name is the last part of the prefix.
func (t Tree) Name() string { return path.Base(t.Prefix) }

func treeOf[V any](prefix string, decode func(*mvccpb.KeyValue, schema.Set, string) (V, error), same func(a, b V) bool) Tree {
	return Tree{
		Prefix: prefix,
		Decode: func(kv *mvccpb.KeyValue, schemas schema.Set, domain string) (any, error) {
			value, err := decode(kv, schemas, domain)
			if err != nil {
				return nil, err
			}
			return value, nil
		},
		Same: func(a, b any) bool { return same(a.(V), b.(V)) },
	}
}

// sameObject says whether two objects are the same state of the same incarnation.
func sameObject(a, b *config.Config) bool {
	return a.ResourceVersion == b.ResourceVersion && a.UID == b.UID && a.Generation == b.Generation &&
		a.CreationTimestamp.Equal(b.CreationTimestamp) && config.SameContent(a, b)
}
