package objects

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// barePath matches a path to a field, as kubectl takes it: with or without the braces and the
// dot before the first name.
var barePath = regexp.MustCompile(`^\{\.?([^{}]+)\}$|^\.?([^{}]+)$`)

// fieldPath is a path to a field of objects.
type fieldPath struct {
	text string // as the user wrote it
	path *jsonpath.JSONPath
}

func parseFieldPath(text string) (*fieldPath, error) {
	parts := barePath.FindStringSubmatch(text)
	if parts == nil {
		return nil, fmt.Errorf("%q is not the path of a field: give one such as .metadata.name", text)
	}
	path := jsonpath.New("path").AllowMissingKeys(true)
	if err := path.Parse("{." + parts[1] + parts[2] + "}"); err != nil {
		return nil, fmt.Errorf("%q is not the path of a field: %w", text, err)
	}
	return &fieldPath{text, path}, nil
}

// of returns what is at the path in an object: nothing, one value, or several.
func (p *fieldPath) of(object map[string]any) []any {
	found, err := p.path.FindResults(object)
	if err != nil { // such as the second element of a list that has one
		return nil
	}
	var out []any
	for _, results := range found {
		for _, one := range results {
			if one.IsValid() && one.CanInterface() && one.Interface() != nil {
				out = append(out, one.Interface())
			}
		}
	}
	return out
}

// noValue stands for a field that an object does not have, as in kubectl.
const noValue = "<none>"

// textOf returns the values at the path, with commas between them.
func (p *fieldPath) textOf(object map[string]any) string {
	values := p.of(object)
	if len(values) == 0 {
		return noValue
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ",")
}
