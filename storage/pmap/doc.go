// Package pmap is a persistent ordered map from string keys to comparable
// values, made so that two versions of a large map can be compared at a cost
// that follows what differs between them.
//
// A Map is an immutable value: Set and Delete return a new Map that shares all
// but O(log n) nodes with the old one. The shape of the tree depends on its
// content alone (a treap whose priorities are a hash of the keys), never on
// the order of the changes that led to it, so equal parts of two maps line up
// and Diff passes over every subtree that they share.
package pmap
