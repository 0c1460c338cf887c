// Package errlist writes errors as texts: several as one by the formats of a multierror, and one as a
// text that stays equal while its cause does.
package errlist

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Cause returns the text of an error on one line, without the local port, which differs each time. It
// is empty for nil.
func Cause(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Source != nil && op.Addr != nil {
		text = strings.ReplaceAll(text, fmt.Sprintf("%s->%s", op.Source, op.Addr), op.Addr.String())
	}
	return strings.Join(strings.Fields(text), " ")
}

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
