package verdict

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// Verdict is one thing that is odd about an object together with others.
type Verdict struct {
	Code Code
	// Field is the path of the field, such as "spec.http[0].route[1].destination.host"; empty
	// for the object as a whole.
	Field string
	// Message says what is wrong and what follows from it, Remedy what to do.
	Message, Remedy string
	// Other is the other object concerned, the zero Key for none.
	Other config.Key

	// Alone means that the verdict is a warning of the object's schema, which looks at no other
	// object.
	Alone bool
}

// String returns the verdict in one line, with its codes.
func (v Verdict) String() string {
	return finding.Finding{Field: v.Field, Message: v.Message, Remedy: v.Remedy}.Text() + " (" + v.Code.Names() + ")"
}

// compare orders the verdicts of one object: errors first, then by field.
func compare(a, b Verdict) int {
	return cmp.Or(
		cmp.Compare(a.Code.Severity(), b.Code.Severity()), compareNatural(a.Field, b.Field),
		strings.Compare(string(a.Code), string(b.Code)), strings.Compare(a.Message, b.Message),
	)
}

// compareNatural compares paths so that [2] comes before [10].
func compareNatural(a, b string) int {
	as, bs := strings.Split(a, "["), strings.Split(b, "[")
	return slices.CompareFunc(as, bs, func(x, y string) int {
		return cmp.Or(cmp.Compare(len(digits(x)), len(digits(y))), strings.Compare(x, y))
	})
}

// digits returns the digits at the beginning of s.
func digits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}
