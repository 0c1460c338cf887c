package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// store is the store of a Reflector: it holds what was delivered.
type store[T any] struct {
	state  *state
	handle func(Batch[T])
	has    func(types.NamespacedName) bool
	// held are the items with a value by name. Only the goroutine of the Reflector uses it.
	held map[types.NamespacedName]held[T]
}

// held is what is kept of an item: it is much smaller.
type held[T any] struct {
	value   T
	uid     types.UID
	version string
}

// Add implements cache.ReflectorStore.
func (s *store[T]) Add(o any) error {
	if change, ok := s.put(o.(*item[T])); ok {
		s.handle(Batch[T]{Changes: []Change[T]{change}})
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store[T]) Update(o any) error { return s.Add(o) }

// Delete implements cache.ReflectorStore.
func (s *store[T]) Delete(o any) error {
	if change, ok := s.remove(o.(*item[T]).name()); ok {
		s.handle(Batch[T]{Changes: []Change[T]{change}})
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store[T]) Replace(list []any, _ string) error {
	batch := Batch[T]{Listed: true}
	add := func(change Change[T], ok bool) {
		if ok {
			batch.Changes = append(batch.Changes, change)
		}
	}
	listed := make(map[types.NamespacedName]bool, len(list))
	for _, o := range list {
		i := o.(*item[T])
		listed[i.name()] = true
		if !i.has {
			batch.Refused = append(batch.Refused, i.name())
		}
		add(s.put(i))
	}
	gone := s.state.faulty()
	for name := range s.held {
		gone[name] = true
	}
	maps.DeleteFunc(gone, func(name types.NamespacedName, _ bool) bool { return listed[name] })
	for name := range gone {
		add(s.remove(name))
	}
	slices.SortFunc(batch.Changes, func(a, b Change[T]) int { return byName(a.Name, b.Name) })
	slices.SortFunc(batch.Refused, byName)
	s.state.setListed(len(s.held))
	s.handle(batch)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store[T]) Resync() error { return nil }

// put takes an item; false if nothing is to be delivered.
func (s *store[T]) put(i *item[T]) (Change[T], bool) {
	name := i.name()
	was, has := s.held[name]
	if !i.has {
		s.state.setFault(&i.ObjectMeta, i.fault, has || s.has(name))
		return Change[T]{}, false
	}
	s.state.clearFault(name)
	if has && was.uid == i.UID && was.version == i.ResourceVersion {
		return Change[T]{}, false
	}
	s.held[name] = held[T]{i.value, i.UID, i.ResourceVersion}
	s.state.setObjects(len(s.held))
	change := Change[T]{Name: name, New: i.value, HasNew: true}
	if has {
		change.Old, change.HadOld = was.value, true
	}
	return change, true
}

func (s *store[T]) remove(name types.NamespacedName) (Change[T], bool) {
	s.state.clearFault(name)
	was, has := s.held[name]
	if !has {
		return Change[T]{}, false
	}
	delete(s.held, name)
	s.state.setObjects(len(s.held))
	return Change[T]{Name: name, Old: was.value, HadOld: true}, true
}

func byName(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
