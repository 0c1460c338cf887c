package serviceentry

import "github.com/portolan-mesh/portolan/storage/labels"

// Candidates returns how many ServiceEntries are checked for a workload of a namespace. Call
// it only while the worker is idle.
func (s *Store) Candidates(namespace string, all labels.Instance) int {
	n := s.catalog.selectors.Value(label{namespace: namespace}.path()).Len()
	for k, v := range all {
		n += s.catalog.selectors.Value(label{namespace, k, v}.path()).Len()
	}
	return n
}
