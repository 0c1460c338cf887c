package health

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The annotations that withdraw a workload from its clients, whatever its health. Their values say
// why. A machine that is drained stays in the mesh. One that is removed is not registered again.
const (
	DrainedAnnotation = "portolan.io/drained"
	RemovedAnnotation = "portolan.io/removed"
)

// Withdrawn says whether the annotations of a WorkloadEntry withdraw it, and why: that it is
// drained, or removed.
func Withdrawn(annotations map[string]string) (why string, ok bool) {
	if why, ok = annotations[RemovedAnnotation]; ok {
		return "it is removed: " + why, true
	}
	if why, ok = annotations[DrainedAnnotation]; ok {
		return "it is drained: " + why, true
	}
	return "", false
}

const maxReason = 256

// CheckReason returns what is wrong with the reason for which a workload is withdrawn.
func CheckReason(why string) error {
	switch {
	case strings.TrimSpace(why) == "":
		return errors.New("says why, and is empty: give a reason, or leave the annotation out")
	case len(why) > maxReason:
		return fmt.Errorf("has %d bytes, and may have %d: give a shorter reason", len(why), maxReason)
	case !utf8.ValidString(why) || strings.ContainsFunc(why, unicode.IsControl):
		return errors.New("has control characters: give a reason of one line")
	}
	return nil
}
