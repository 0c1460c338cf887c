package pmap

import "iter"

// Change is one key whose value differs between two maps. Where HasOld or
// HasNew is false the key is absent on that side and the value is zero.
type Change[V comparable] struct {
	Key            string
	Old, New       V
	HasOld, HasNew bool
}

// Diff iterates in key order over the changes that lead from one map to the other. Values
// are compared by ==. Diff skips subtrees that the maps share, so a map made from another
// by k changes costs O(k log n).
func Diff[V comparable](from, to Map[V]) iter.Seq[Change[V]] {
	return func(yield func(Change[V]) bool) { diff(from.root, to.root, yield) }
}

// Find iterates over the keys of one map, in order, with their values in another: the zero
// value for a key that it lacks. Maps of the same keys have the same shape, so Find takes
// one step a key for them.
func Find[K, V comparable](keys Map[K], in Map[V]) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { find(keys.root, in.root, yield) }
}

func find[K, V comparable](keys *node[K], in *node[V], yield func(string, V) bool) bool {
	var none V
	switch {
	case keys == nil:
		return true
	case in == nil:
		return walk(keys, "", func(key string, _ K) bool { return yield(key, none) })
	case keys.key == in.key:
		return find(keys.left, in.left, yield) && yield(keys.key, in.value) && find(keys.right, in.right, yield)
	case above(keys.priority, keys.key, in.priority, in.key):
		below, _, over := split(in, keys.key)
		return find(keys.left, below, yield) && yield(keys.key, none) && find(keys.right, over, yield)
	}
	below, at, over := split(keys, in.key)
	return find(below, in.left, yield) && (at == nil || yield(in.key, in.value)) && find(over, in.right, yield)
}

func diff[V comparable](from, to *node[V], yield func(Change[V]) bool) bool {
	switch {
	case from == to:
		return true
	case from == nil:
		return walk(to, "", func(key string, value V) bool {
			return yield(Change[V]{Key: key, New: value, HasNew: true})
		})
	case to == nil:
		return walk(from, "", func(key string, value V) bool {
			return yield(Change[V]{Key: key, Old: value, HasOld: true})
		})
	}
	if above(from.priority, from.key, to.priority, to.key) {
		below, at, over := split(to, from.key)
		return diff(from.left, below, yield) && diffNode(from, at, yield) && diff(from.right, over, yield)
	}
	// The root of to is the higher one, or both roots have the same key.
	below, at, over := split(from, to.key)
	return diff(below, to.left, yield) && diffNode(at, to, yield) && diff(over, to.right, yield)
}

// diffNode compares two nodes of the same key; one of them may be missing.
func diffNode[V comparable](from, to *node[V], yield func(Change[V]) bool) bool {
	switch {
	case from == nil:
		return yield(Change[V]{Key: to.key, New: to.value, HasNew: true})
	case to == nil:
		return yield(Change[V]{Key: from.key, Old: from.value, HasOld: true})
	case from.value == to.value:
		return true
	}
	return yield(Change[V]{Key: from.key, Old: from.value, New: to.value, HasOld: true, HasNew: true})
}
