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

// SetAll returns a map in which keys have the given values, which are in strictly
// ascending order of their keys. It is what as many calls of Set return. Where the keys
// are there already it copies each node on their way once.
func (m Map[V]) SetAll(entries []Entry[V]) Map[V] {
	root, absent := replace(m.root, entries, nil)
	m = Map[V]{root}
	for _, e := range absent {
		m = m.Set(e.Key, e.Value)
	}
	return m
}

// replace sets the values of keys that are there, and adds the other entries to absent.
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
