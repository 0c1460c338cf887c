package serviceentry

import "github.com/portolan-mesh/portolan/storage/labels"

// Candidates is how many ServiceEntries are looked at for a workload of a
// namespace. It may be called while the worker has nothing to do.
func (s *Store) Candidates(namespace string, all labels.Instance) int {
	p := s.catalog.place(namespace)
	n := len(p.selectors[label{}])
	for k, v := range all {
		n += len(p.selectors[label{k, v}])
	}
	return n
}
