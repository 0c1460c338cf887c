package selection

import (
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Selection is which namespaces of a cluster count. It is never modified, and Selections that
// are == are equal. The zero Selection is of all namespaces.
type Selection struct {
	some  bool
	names pmap.Map[struct{}] // if some
}

// Of returns the Selection of the namespaces that a list matches, by the labels of each.
func Of(list List, namespaces pmap.Map[*Namespace]) Selection {
	if list.Empty() {
		return Selection{}
	}
	out := Selection{some: true}
	for name, n := range namespaces.All() {
		out = out.With(name, list.Matches(n.Labels))
	}
	return out
}

// Has says whether what is in a namespace counts; what has none always does.
func (s Selection) Has(namespace string) bool {
	if !s.some || namespace == "" {
		return true
	}
	_, has := s.names.Get(namespace)
	return has
}

// With returns a Selection of some namespaces in which one counts, or does not.
func (s Selection) With(namespace string, counts bool) Selection {
	switch {
	case s.some && s.Has(namespace) == counts:
	case counts:
		s.names = s.names.Set(namespace, struct{}{})
	default:
		s.names = s.names.Delete(namespace)
	}
	return s
}

// Equal says whether two Selections are of the same namespaces.
func (s Selection) Equal(o Selection) bool { return s.some == o.some && pmap.Equal(s.names, o.names) }

// Namespace is what is known of a Namespace of a cluster. It is never modified.
type Namespace struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// Paths says how the keys of a map tell the namespaces of its values.
type Paths struct {
	// Of returns the namespace in a key, empty for none.
	Of func(key string) string
	// Prefixes returns the prefixes of the keys of a namespace.
	Prefixes func(namespace string) []string
}

// Moved returns the keys of the values in namespaces that count in one of two Selections alone, in
// order. The cost follows these values, unless one Selection is of all namespaces.
func Moved[V comparable](from, to Selection, values pmap.Map[V], by Paths) (keys []string) {
	if !from.some || !to.some {
		for key := range values.Keys() {
			if namespace := by.Of(key); from.Has(namespace) != to.Has(namespace) {
				keys = append(keys, key)
			}
		}
		return keys
	}
	for change := range pmap.Diff(from.names, to.names) {
		for _, prefix := range by.Prefixes(change.Key) {
			for key := range values.Prefix(prefix) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
