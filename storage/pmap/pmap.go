package pmap

import (
	"hash/maphash"
	"iter"
	"strings"
)

// seed makes the priorities unpredictable, so that no choice of keys can
// degrade the tree. Shapes are comparable within one process only.
var seed = maphash.MakeSeed()

// Map is an immutable ordered map. The zero Map is empty and ready to use.
// Two Maps that are == share their whole content; the converse does not hold,
// see Equal.
type Map[V comparable] struct {
	root *node[V]
}

type node[V comparable] struct {
	key         string
	value       V
	priority    uint64
	size        int
	left, right *node[V]
}

func newNode[V comparable](key string, value V, priority uint64, left, right *node[V]) *node[V] {
	return &node[V]{
		key: key, value: value, priority: priority,
		size: left.count() + right.count() + 1, left: left, right: right,
	}
}

func (n *node[V]) count() int {
	if n == nil {
		return 0
	}
	return n.size
}

// with returns a copy of n with other children.
func (n *node[V]) with(left, right *node[V]) *node[V] {
	return newNode(n.key, n.value, n.priority, left, right)
}

// above says whether the first entry belongs nearer to the root. Keys break
// ties, so the order is total and the shape canonical.
func above(priority uint64, key string, otherPriority uint64, otherKey string) bool {
	if priority != otherPriority {
		return priority > otherPriority
	}
	return key < otherKey
}

// Len returns the number of entries.
func (m Map[V]) Len() int { return m.root.count() }

// Get returns the value of key and whether there is one.
func (m Map[V]) Get(key string) (V, bool) {
	n := m.root
	for n != nil {
		switch c := strings.Compare(key, n.key); {
		case c == 0:
			return n.value, true
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	var zero V
	return zero, false
}

// Value returns the value of key, or the zero value.
func (m Map[V]) Value(key string) V {
	v, _ := m.Get(key)
	return v
}

// Set returns a map in which key has the given value: m itself if key has it already.
func (m Map[V]) Set(key string, value V) Map[V] {
	return Map[V]{set(m.root, key, value, maphash.String(seed, key))}
}

func set[V comparable](n *node[V], key string, value V, priority uint64) *node[V] {
	switch {
	case n == nil:
		return newNode[V](key, value, priority, nil, nil)
	case key == n.key:
		if value == n.value {
			return n
		}
		return newNode(key, value, priority, n.left, n.right)
	case above(priority, key, n.priority, n.key):
		left, _, right := split(n, key)
		return newNode(key, value, priority, left, right)
	case key < n.key:
		left := set(n.left, key, value, priority)
		if left == n.left {
			return n
		}
		return n.with(left, n.right)
	default:
		right := set(n.right, key, value, priority)
		if right == n.right {
			return n
		}
		return n.with(n.left, right)
	}
}

// Delete returns a map without key: m itself if key is absent.
func (m Map[V]) Delete(key string) Map[V] { return Map[V]{remove(m.root, key)} }

func remove[V comparable](n *node[V], key string) *node[V] {
	switch {
	case n == nil:
		return nil
	case key == n.key:
		return join(n.left, n.right)
	case key < n.key:
		left := remove(n.left, key)
		if left == n.left {
			return n
		}
		return n.with(left, n.right)
	default:
		right := remove(n.right, key)
		if right == n.right {
			return n
		}
		return n.with(n.left, right)
	}
}

// split parts a tree into the keys below key, the node of key itself (or nil)
// and the keys above it. Subtrees that lie on one side are shared.
func split[V comparable](n *node[V], key string) (below, at, over *node[V]) {
	switch {
	case n == nil:
		return nil, nil, nil
	case n.key == key:
		return n.left, n, n.right
	case key < n.key:
		below, at, over = split(n.left, key)
		if over == n.left {
			return below, at, n
		}
		return below, at, n.with(over, n.right)
	default:
		below, at, over = split(n.right, key)
		if below == n.right {
			return n, at, over
		}
		return n.with(n.left, below), at, over
	}
}

// join is the inverse of split: every key of left is below every key of right.
func join[V comparable](left, right *node[V]) *node[V] {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case above(left.priority, left.key, right.priority, right.key):
		return left.with(left.left, join(left.right, right))
	default:
		return right.with(join(left, right.left), right.right)
	}
}

// All iterates over the entries in key order.
func (m Map[V]) All() iter.Seq2[string, V] { return m.From("") }

// From iterates in key order over the entries whose key is not below start.
func (m Map[V]) From(start string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { walk(m.root, start, yield) }
}

func walk[V comparable](n *node[V], start string, yield func(string, V) bool) bool {
	if n == nil {
		return true
	}
	if n.key < start {
		return walk(n.right, start, yield)
	}
	return walk(n.left, start, yield) && yield(n.key, n.value) && walk(n.right, start, yield)
}

// Prefix iterates in key order over the entries whose key begins with prefix.
func (m Map[V]) Prefix(prefix string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for key, value := range m.From(prefix) {
			if !strings.HasPrefix(key, prefix) || !yield(key, value) {
				return
			}
		}
	}
}

// Values iterates over the values in key order.
func (m Map[V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m.All() {
			if !yield(v) {
				return
			}
		}
	}
}

// Keys iterates over the keys in order.
func (m Map[V]) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range m.All() {
			if !yield(k) {
				return
			}
		}
	}
}

// Equal says whether two maps have the same content. It costs what Diff costs.
func Equal[V comparable](a, b Map[V]) bool {
	for range Diff(a, b) {
		return false
	}
	return true
}
