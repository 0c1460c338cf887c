package kube

import (
	"strings"

	"github.com/portolan-mesh/portolan/cache/kube/selection"
)

// paths tells the namespaces of objects by their paths.
var paths = selection.Paths{Of: namespaceOf, Prefixes: func(namespace string) []string {
	return []string{podPrefix + namespace + "/", servicePrefix + namespace + "/", slicePrefix + namespace + "/"}
}}

// namespaceOf returns the namespace in the path of an object, empty for a Node.
func namespaceOf(path string) string {
	parts := strings.SplitN(path, "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[1]
}

// setSelection takes which namespaces count.
func (r *Registry) setSelection(now selection.Selection) {
	r.inbox.mu.Lock()
	r.inbox.selected = &now
	r.inbox.mu.Unlock()
	r.post()
}

// choose takes over which namespaces count: objects come and go, and the handlers of workloads are
// called. It runs on the worker.
func (r *Registry) choose(now selection.Selection) {
	if r.selected == now {
		return
	}
	moved := map[string]object{}
	for _, path := range selection.Moved(r.selected, now, r.known.objects, paths) {
		moved[path], _ = r.known.objects.Value(path).(object)
	}
	for _, path := range selection.Moved(r.selected, now, r.aside, paths) {
		moved[path] = r.aside.Value(path)
	}
	r.selected = now
	r.apply(moved)
}

// put keeps an object where its namespace has it, nil for one that is gone.
func (r *Registry) put(path string, curr object) {
	if curr == nil || r.selected.Has(namespaceOf(path)) {
		r.aside = r.aside.Delete(path)
		r.known.set(r.convert, path, curr, &r.marks)
		return
	}
	r.aside = r.aside.Set(path, curr)
	r.known.set(r.convert, path, nil, &r.marks)
}
