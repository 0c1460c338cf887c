package schema

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxSteps bounds the steps of a path; steps that do not fit become one, as text.
const maxSteps = 6

// fieldPath is a value, and becomes text only where something is reported: a check walks
// through all fields of an object, and most have no fault.
type fieldPath struct {
	steps [maxSteps]step
	n     int
}

// step is a field, the entry of a map, or an element of a list. Its zero value is no step.
type step struct {
	name  string
	entry bool
	// element is the index of an element of the list, from 1; 0 is the list itself.
	element int
}

// pathOf returns the path of a top-level field; an empty name is the whole document.
func pathOf(field string) fieldPath {
	var p fieldPath
	if field != "" {
		p.add(step{name: field})
	}
	return p
}

func (p *fieldPath) add(s step) {
	if p.n == maxSteps {
		p.steps[0], p.n = step{name: p.String()}, 1
	}
	p.steps[p.n] = s
	p.n++
}

func (p *fieldPath) addElement(i int) {
	if p.n == 0 || p.steps[p.n-1].element > 0 {
		p.add(step{})
	}
	p.steps[p.n-1].element = i + 1
}

// String is the path as YAML documents write it, such as spec.http[0].route.
func (p *fieldPath) String() string {
	var text strings.Builder
	for i, s := range p.steps[:p.n] {
		switch {
		case s.entry:
			text.WriteString("[" + s.name + "]")
		case i > 0 && s.name != "":
			text.WriteString("." + s.name)
		default:
			text.WriteString(s.name)
		}
		if s.element > 0 {
			text.WriteString("[" + strconv.Itoa(s.element-1) + "]")
		}
	}
	return text.String()
}

// sortedKeys returns the keys of a map in order, nil without an allocation for an empty map.
func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}
