package pmap

import (
	"slices"
	"strings"
)

// Entry is a value under a key.
type Entry[V comparable] struct {
	Key   string
	Value V
}

// SetAll returns the map that a call of Set for each entry returns. The keys of entries are
// in strictly ascending order. If the keys exist already, SetAll copies each node on their
// paths only once.
func (m Map[V]) SetAll(entries []Entry[V]) Map[V] {
	root, absent := replace(m.root, entries, nil)
	m = Map[V]{root}
	for _, e := range absent {
		m = m.Set(e.Key, e.Value)
	}
	return m
}

// replace sets the values of keys that exist, and adds the other entries to absent.
func replace[V comparable](n *node[V], entries, absent []Entry[V]) (*node[V], []Entry[V]) {
	if n == nil || len(entries) == 0 {
		return n, append(absent, entries...)
	}
	at, found := slices.BinarySearchFunc(entries, n.key, func(e Entry[V], key string) int { return strings.Compare(e.Key, key) })
	left, absent := replace(n.left, entries[:at], absent)
	value, over := n.value, entries[at:]
	if found {
		value, over = over[0].Value, over[1:]
	}
	right, absent := replace(n.right, over, absent)
	if left == n.left && right == n.right && value == n.value {
		return n, absent
	}
	return newNode(n.key, value, n.priority, left, right), absent
}
