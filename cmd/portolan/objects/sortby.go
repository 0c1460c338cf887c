package objects

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// sortBy sorts objects by what is at a path: those without it first, then numbers by their value,
// and texts. A text that is a number, as a revision is, counts as one.
func sortBy(path *fieldPath, objects []*unstructured.Unstructured) error {
	values := map[*unstructured.Unstructured]any{}
	for _, object := range objects {
		found := path.of(object.Object)
		if len(found) == 0 {
			continue
		}
		switch v := found[0].(type) {
		case map[string]any, []any:
			return exit.With(exit.Usage, fmt.Errorf("--sort-by %s: that is not one value in %s: give the path of a text or a number", path.text, object.GetName()))
		default:
			values[object] = v
		}
	}
	if len(values) == 0 && len(objects) > 0 {
		return exit.With(exit.Usage, fmt.Errorf("--sort-by %s: no object has that", path.text))
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return compareValues(values[a], values[b]) })
	return nil
}

// compareValues compares two values of JSON; nil is that there is none.
func compareValues(a, b any) int {
	if a == nil || b == nil {
		return cmp.Compare(there(a), there(b))
	}
	x, xerr := strconv.ParseFloat(fmt.Sprint(a), 64)
	y, yerr := strconv.ParseFloat(fmt.Sprint(b), 64)
	if errors.Join(xerr, yerr) == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

func there(value any) int {
	if value == nil {
		return 0
	}
	return 1
}
