package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/portolan-mesh/portolan/storage/config"
)

// maxFindings bounds the reported faults of one object, and its warnings.
const maxFindings = 100

// Report collects the faults of one object, and the warnings about it.
type Report struct {
	object   *config.Config
	specPath string // where the spec stands in a document, empty for its top level
	faults   *multierror.Error
	warnings []Warning
	insecure []*FieldError // unserved fields of security
	short    shortNames
}

// Fault reports a fault of the field at a path such as spec.hosts[0]: the object
// is refused.
func (r *Report) Fault(path, format string, args ...any) {
	if n := len(r.faults.WrappedErrors()); n > maxFindings {
		return
	} else if n == maxFindings {
		path, format, args = r.specPath, "has more faults: mend these first", nil
	}
	r.faults = multierror.Append(r.faults, &FieldError{path, fmt.Sprintf(format, args...)})
}

// Warning is about a field, or a whole object, that is accepted but has no effect or not
// the expected one.
type Warning struct {
	// Code identifies the kind of warning and never changes, see the table in package
	// verdict.
	Code string
	// Field is its path, empty for the whole object.
	Field, Message string
}

// Text returns the warning in one line, without its codes.
func (w Warning) Text() string { return strings.TrimPrefix(w.Field+" "+w.Message, " ") }

// String returns the warning in one line, with its code and the code of Istio's analysis of
// equal meaning.
func (w Warning) String() string {
	codes := w.Code
	if w.Code == codeNeverUsed {
		codes += ", IST0130"
	}
	return w.Text() + " (" + codes + ")"
}

// The codes of warnings.
const (
	codeNeverUsed = "PTL0113"
	codeNotServed = "PTL0121"
	codeOdd       = "PTL0128"
	codeShortName = "PTL0155"
)

// Warn reports a field at a path that is accepted, and has no effect or not the
// expected one.
func (r *Report) Warn(path, format string, args ...any) { r.warn(codeOdd, path, format, args...) }

func (r *Report) warn(code, path, format string, args ...any) {
	if n := len(r.warnings); n > maxFindings {
		return
	} else if n == maxFindings {
		code, path, format, args = codeOdd, r.specPath, "has more that will not do what it seems to", nil
	}
	r.warnings = append(r.warnings, Warning{code, path, fmt.Sprintf(format, args...)})
}

func (r *Report) spec() checker { return r.at(r.specPath) }

// at returns a checker at a top-level field.
func (r *Report) at(field string) checker { return checker{r, pathOf(field)} }

// checker stands at one field of an object, and reports to its Report.
type checker struct {
	report *Report
	place  fieldPath
}

func (c checker) path() string { return c.place.String() }

// at descends to a field of a mapping, and on through fields of fields.
func (c checker) at(fields ...string) checker {
	for _, field := range fields {
		c.place.add(step{name: field})
	}
	return c
}

// index descends to an element of a list.
func (c checker) index(i int) checker {
	c.place.addElement(i)
	return c
}

// key descends to an entry of a map.
func (c checker) key(k string) checker {
	c.place.add(step{name: k, entry: true})
	return c
}

// fail reports a fault of the field.
func (c checker) fail(format string, args ...any) { c.report.Fault(c.path(), format, args...) }

// full says that no more faults are reported.
func (c checker) full() bool { return len(c.report.faults.WrappedErrors()) > maxFindings }

func (c checker) failIf(err error) {
	if err != nil {
		c.fail("%v", err)
	}
}

// warn reports that the field is accepted, and has no effect or not the expected one.
func (c checker) warn(format string, args ...any) { c.report.Warn(c.path(), format, args...) }

// notServed reports that the field has no effect, and will have one when it is served.
func (c checker) notServed(format string, args ...any) {
	c.report.warn(codeNotServed, c.path(), format, args...)
}

// insecure reports that the field is not served, and that security is weaker while it has
// no effect. The object is valid; Schema.UnservedSecurity returns what is reported here.
func (c checker) insecure(format string, args ...any) {
	c.notServed(format, args...)
	if len(c.report.insecure) < maxFindings {
		c.report.insecure = append(c.report.insecure, &FieldError{c.path(), fmt.Sprintf(format, args...)})
	}
}

// each calls check with every element of a list and a checker at it.
func each[T any](c checker, list []T, check func(checker, T)) {
	for i, v := range list {
		if c.full() {
			return
		}
		check(c.index(i), v)
	}
}

// unique reports elements of a list whose keys are equal, at the field that is
// the key; the zero key is no key.
func unique[T any, K comparable](c checker, list []T, key func(T) K, field ...string) {
	var none K
	seen := make(map[K]int, len(list))
	for i, v := range list {
		k := key(v)
		if first, ok := seen[k]; ok {
			c.index(i).at(field...).fail("%q is set twice, also at %s", fmt.Sprint(k), c.index(first).at(field...).path())
		} else if k != none {
			seen[k] = i
		}
	}
}

func warnDuplicates(c checker, list []string) {
	for i, v := range list {
		if first := slices.Index(list, v); first < i {
			c.index(i).warn("%q stands twice, also at %s", v, c.index(first).path())
		}
	}
}

func identity(s string) string { return s }

// anySet says whether a message has a field set other than the named ones.
func anySet(m proto.Message, except ...string) bool {
	set := false
	m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		set = !slices.Contains(except, fd.JSONName())
		return !set
	})
	return set
}

func lower(s string) string { return strings.ToLower(s) }
