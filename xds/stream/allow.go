package stream

import "github.com/portolan-mesh/portolan/xds/resource"

// Allow says what the next response may carry. What it may not carry stays due,
// and Next is to be asked again when it may.
type Allow struct {
	// Add says whether the resource of a name may be added or changed; nil for all.
	Add func(name string) bool
	// Instead is what goes out for now in place of the resource of a name, which
	// then is still due; nil for that itself.
	Instead func(name string) *resource.Resource
	// Remove says whether the client may be told to give a name up; nil for none.
	Remove func(name string) bool
	// Together has removals go in one response with additions, for resources that
	// must not be there at the same time. Otherwise they go alone.
	Together bool
}

// Additions allows all that is added or changed, and no removal.
func Additions() Allow { return Allow{} }

// All allows all additions, and all removals once nothing that may be added is
// due.
func All() Allow { return Allow{Remove: func(string) bool { return true }} }

func (a Allow) adds(name string) bool { return a.Add == nil || a.Add(name) }

func (a Allow) instead(name string) *resource.Resource {
	if a.Instead == nil {
		return nil
	}
	return a.Instead(name)
}

func (a Allow) removes(name string) bool { return a.Remove != nil && a.Remove(name) }
