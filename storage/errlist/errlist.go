// Package errlist writes several errors as one text. Its functions are formats of a multierror.
package errlist

import (
	"fmt"
	"strings"
)

// OneLine writes errors one after the other.
func OneLine(all []error) string {
	texts := make([]string, len(all))
	for i, err := range all {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Lines writes errors one a line below their number, and a single one as it is. Errors that wrap them
// need the format before they do.
func Lines(all []error) string {
	if len(all) == 1 {
		return all[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults:", len(all))
	for _, err := range all {
		b.WriteString("\n  " + err.Error())
	}
	return b.String()
}
