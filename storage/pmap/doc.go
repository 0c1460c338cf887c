// Package pmap is a persistent ordered map from string keys to comparable values. To
// compare two versions of a large map costs in proportion to their difference.
//
// A Map is an immutable value: Set and Delete return a new Map that shares all but O(log n)
// nodes with the old one. The tree is a treap whose priorities are a hash of the keys. So
// its shape depends on its content alone, never on the order of changes: equal parts of two
// maps line up, and Diff skips every subtree that they share.
package pmap
