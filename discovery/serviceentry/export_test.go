package serviceentry

import "github.com/portolan-mesh/portolan/storage/labels"

// Candidates is how many ServiceEntries are looked at for a workload of a
// namespace. It may be called while the worker has nothing to do.
func (s *Store) Candidates(namespace string, all labels.Instance) int {
	n := s.catalog.selectors.Value(label{namespace: namespace}.path()).Len()
	for k, v := range all {
		n += s.catalog.selectors.Value(label{namespace, k, v}.path()).Len()
	}
	return n
}
