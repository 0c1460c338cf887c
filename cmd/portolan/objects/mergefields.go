package objects

import (
	"maps"
	"reflect"
	"slices"
)

// absent is the value of a field that an object does not have.
type absent struct{}

// sides are what a merge makes of a value: with the user's changes, with the value as it was read,
// and with the stored one, where both have changed a field. Elsewhere they are the same.
type sides struct{ mine, base, theirs any }

func agreed(value any) sides { return sides{value, value, value} }

// mergeFields merges what the user has made of a value with what it has become in the store, field
// by field. The elements of lists whose elements all have a name are fields, too, while their
// names and order stay.
func mergeFields(mine, base, theirs any) sides {
	switch {
	case reflect.DeepEqual(mine, theirs), reflect.DeepEqual(base, theirs):
		return agreed(mine)
	case reflect.DeepEqual(mine, base):
		return agreed(theirs)
	}
	if m, t := asMap(mine), asMap(theirs); m != nil && t != nil {
		return mergeMaps(m, asMap(base), t)
	}
	if names := namesIn(base); names != nil && slices.Equal(names, namesIn(mine)) && slices.Equal(names, namesIn(theirs)) {
		return mergeElements(mine.([]any), base.([]any), theirs.([]any))
	}
	return sides{mine, base, theirs}
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

func mergeMaps(mine, base, theirs map[string]any) sides {
	keys := map[string]bool{}
	for _, side := range []map[string]any{mine, base, theirs} {
		for key := range side {
			keys[key] = true
		}
	}
	m, b, t := map[string]any{}, map[string]any{}, map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		merged := mergeFields(field(mine, key), field(base, key), field(theirs, key))
		put(m, key, merged.mine)
		put(b, key, merged.base)
		put(t, key, merged.theirs)
	}
	return sides{m, b, t}
}

func field(of map[string]any, key string) any {
	if value, ok := of[key]; ok {
		return value
	}
	return absent{}
}

func put(into map[string]any, key string, value any) {
	if _, none := value.(absent); !none {
		into[key] = value
	}
}

func mergeElements(mine, base, theirs []any) sides {
	m, b, t := make([]any, len(base)), make([]any, len(base)), make([]any, len(base))
	for i := range base {
		merged := mergeFields(mine[i], base[i], theirs[i])
		m[i], b[i], t[i] = merged.mine, merged.base, merged.theirs
	}
	return sides{m, b, t}
}

// namesIn returns the names of the elements of a list, nil if one has none or shares it.
func namesIn(value any) []string {
	list, _ := value.([]any)
	var names []string
	for _, element := range list {
		name, _ := asMap(element)["name"].(string)
		if name == "" || slices.Contains(names, name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}
