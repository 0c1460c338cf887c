package exit

import (
	"errors"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/storage/errlist"
)

// Text returns what a command says of the error with which it ends: several faults one a line.
func Text(err error) string {
	var many *multierror.Error
	if errors.As(err, &many) {
		many.ErrorFormat = errlist.Lines
	}
	return strings.TrimSpace(err.Error())
}
