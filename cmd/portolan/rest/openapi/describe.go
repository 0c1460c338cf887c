package openapi

import (
	_ "embed" // for descriptionsYAML
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed descriptions.yaml
var descriptionsYAML []byte

// described has the descriptions that are in none of the types.
var described = sync.OnceValue(func() descriptions { return mustDescriptions(descriptionsYAML) })

// anyKind stands for all kinds in the descriptions.
const anyKind = "*"

// descriptions has texts by the name of a type in the tables and by field. The text of the
// type itself is under the empty field.
type descriptions map[string]map[string]string

// text returns the description of a field of a type, or of the type for an empty field;
// empty if there is none.
func (d descriptions) text(name, field string) string { return strings.TrimSpace(d[name][field]) }

// mustDescriptions reads descriptions, which are part of the program.
func mustDescriptions(text []byte) descriptions {
	var out descriptions
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		panic(fmt.Sprintf("openapi: descriptions.yaml: %v", err))
	}
	return out
}
