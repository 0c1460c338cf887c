package access

import (
	"fmt"
	"strings"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// maxWeakenings bounds how many fields of one object an error names.
const maxWeakenings = 5

// weakenings returns, by operation, what the objects to be written open that policies close; nil
// for nothing.
func (k *Keeper) weakenings(ops []storage.Op) map[int][]*schema.FieldError {
	if k.o.Weakens == nil {
		return nil
	}
	var out map[int][]*schema.FieldError
	for i, op := range ops {
		if op.Config == nil {
			continue
		}
		if found := k.o.Weakens(op.Config); len(found) > 0 {
			if out == nil {
				out = map[int][]*schema.FieldError{}
			}
			out[i] = found
		}
	}
	return out
}

// checkWeakenings sets, for each operation that opens what policies close, why the caller may not do
// it, unless another reason is there already.
func (k *Keeper) checkWeakenings(who Identity, ops []storage.Op, weakenings map[int][]*schema.FieldError, p *policy, out []error) {
	for i, found := range weakenings {
		key := ops[i].Target()
		want := action{verb: access.PatchSecurity, kind: k.o.Schemas.Kind(key.Kind).Plural, namespace: key.Namespace, name: key.Name}
		if out[i] != nil || p.permits(who, want) {
			continue
		}
		var fields []string
		for n, f := range found {
			if n == maxWeakenings {
				fields = append(fields, fmt.Sprintf("and %d more", len(found)-n))
				break
			}
			fields = append(fields, f.Field+" "+f.Message)
		}
		out[i] = fmt.Errorf("%s; user %q may not %s: leave that out, or have the user given a role with the verb %s for %s",
			strings.Join(fields, "; "), who.User, want, access.PatchSecurity, want.kind)
	}
}
