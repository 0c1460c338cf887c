package pmap

import (
	"fmt"
	"hash/maphash"
	"iter"
)

// FromSorted builds a map in O(n) from entries in strictly ascending key
// order. It panics on a key out of order: that is a programmer's error.
func FromSorted[V comparable](entries iter.Seq2[string, V]) Map[V] {
	// spine is the right edge of the tree so far, root first.
	var spine []*node[V]
	for key, value := range entries {
		n := &node[V]{key: key, value: value, priority: maphash.String(seed, key)}
		if len(spine) > 0 && key <= spineEnd(spine).key {
			panic(fmt.Sprintf("pmap.FromSorted: key %q after %q", key, spineEnd(spine).key))
		}
		var last *node[V]
		for len(spine) > 0 && above(n.priority, n.key, spineEnd(spine).priority, spineEnd(spine).key) {
			last = spineEnd(spine)
			spine = spine[:len(spine)-1]
		}
		n.left = last
		if len(spine) > 0 {
			spineEnd(spine).right = n
		}
		spine = append(spine, n)
	}
	if len(spine) == 0 {
		return Map[V]{}
	}
	measure(spine[0])
	return Map[V]{spine[0]}
}

func spineEnd[V comparable](spine []*node[V]) *node[V] { return spine[len(spine)-1] }

// measure fills in the sizes of a tree under construction.
func measure[V comparable](n *node[V]) int {
	if n == nil {
		return 0
	}
	n.size = measure(n.left) + measure(n.right) + 1
	return n.size
}
