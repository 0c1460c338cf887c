package schema

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
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

// at descends to a field of a mapping.
func (c checker) at(field string) checker {
	return checker{c.report, c.path + "." + field}
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

func lower(s string) string { return strings.ToLower(s) }
