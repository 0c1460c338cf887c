package protocol

import "github.com/portolan-mesh/portolan/xds/resource"

// Allow says what the next response may carry. Everything else stays due; call Next again
// once Allow changes.
type Allow struct {
	// Add says whether the resource of a name may be added or changed; nil for all.
	Add func(name string) bool
	// Interim returns the form that is sent for now in place of the resource of a name,
	// which stays due; nil to send the resource itself.
	Interim func(name string) *resource.Resource
	// Remove says whether a removal of a name may be sent; nil for none.
	Remove func(name string) bool
	// Together sends removals in one response with additions, for resources that must not
	// exist at the same time, as two virtual hosts with one domain. Otherwise they go
	// alone.
	Together bool
}

// Additions allows all additions and changes, and no removals.
func Additions() Allow { return Allow{} }

func (a Allow) adds(name string) bool { return a.Add == nil || a.Add(name) }

func (a Allow) interim(name string) *resource.Resource {
	if a.Interim == nil {
		return nil
	}
	return a.Interim(name)
}

func (a Allow) removes(name string) bool { return a.Remove != nil && a.Remove(name) }
