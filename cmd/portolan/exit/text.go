package exit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Text returns what a command says of the error with which it ends: several faults one a line.
func Text(err error) string {
	var many *multierror.Error
	if errors.As(err, &many) {
		many.ErrorFormat = Lines
	}
	return strings.TrimSpace(err.Error())
}

// Lines is the format of several faults, one a line. Errors that wrap them need it before they do.
func Lines(faults []error) string {
	if len(faults) == 1 {
		return faults[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults:", len(faults))
	for _, f := range faults {
		b.WriteString("\n  " + f.Error())
	}
	return b.String()
}
