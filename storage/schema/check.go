package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// report collects what is found in one object.
type report struct {
	faults   *multierror.Error
	warnings []string
}

// at returns a checker at a top-level field.
func (r *report) at(field string) checker { return checker{report: r, path: field} }

// checker stands at one field of an object, and reports what is found there.
type checker struct {
	report *report
	path   string
}

// at descends to a field of a mapping, and on through fields of fields.
func (c checker) at(fields ...string) checker {
	return checker{c.report, c.path + "." + strings.Join(fields, ".")}
}

// index descends to an element of a list.
func (c checker) index(i int) checker {
	return checker{c.report, fmt.Sprintf("%s[%d]", c.path, i)}
}

// key descends to an entry of a map.
func (c checker) key(k string) checker {
	return checker{c.report, c.path + "[" + k + "]"}
}

// fail reports a fault: the object is refused.
func (c checker) fail(format string, args ...any) {
	c.report.faults = multierror.Append(c.report.faults, &FieldError{c.path, fmt.Sprintf(format, args...)})
}

// failIf reports a fault where there is an error.
func (c checker) failIf(err error) {
	if err != nil {
		c.fail("%v", err)
	}
}

// warn reports what is accepted and will not do what it seems to.
func (c checker) warn(format string, args ...any) {
	c.report.warnings = append(c.report.warnings, c.path+" "+fmt.Sprintf(format, args...))
}

// each calls check with every element of a list and a checker at it.
func each[T any](c checker, list []T, check func(checker, T)) {
	for i, v := range list {
		check(c.index(i), v)
	}
}

// unique reports elements of a list whose keys are equal, at the field that is
// the key; the zero key is no key.
func unique[T any, K comparable](c checker, list []T, key func(T) K, field ...string) {
	var none K
	seen := map[K]string{}
	for i, v := range list {
		at, k := c.index(i), key(v)
		if len(field) > 0 {
			at = at.at(field...)
		}
		if first, ok := seen[k]; ok {
			at.fail("%q is set twice, also at %s", fmt.Sprint(k), first)
		} else if k != none {
			seen[k] = at.path
		}
	}
}

func itself(s string) string { return s }

// anySet says whether a field of a message is set, other than those named.
func anySet(m proto.Message, except ...string) bool {
	set := false
	m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		set = !slices.Contains(except, fd.JSONName())
		return !set
	})
	return set
}

func lower(s string) string { return strings.ToLower(s) }
