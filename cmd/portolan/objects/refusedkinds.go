package objects

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// refusedKinds are those of all kinds that the user may not list.
type refusedKinds struct {
	names []string
	err   error // about the first
}

// add says whether a list was refused to the user, and remembers its kind.
func (r *refusedKinds) add(kind *schema.Schema, err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	if r.err == nil {
		r.err = err
	}
	r.names = append(r.names, kind.Plural)
	return true
}

// ifOnly returns an error if no other kinds are left.
func (r *refusedKinds) ifOnly(others int) error {
	if others > 0 {
		return nil
	}
	return r.err
}

// tell prints which kinds are left out.
func (r *refusedKinds) tell(env *environment) {
	if len(r.names) > 0 {
		fmt.Fprintf(env.Stderr, "Left out, since you may not list them: %s\n", strings.Join(r.names, ", "))
	}
}
