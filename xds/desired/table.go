package desired

import (
	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// table holds the resources that one generator makes. A resource that cannot be built
// keeps its last good form, is reported as a failure, and is built again with the next
// change.
type table struct {
	typeName  string
	generator generate.Generator
	failures  *failures
	// memo shares built resources with other groups or, of a type whose resources are own to
	// workloads, with other workloads; nil if they are not shared.
	memo *memo.Memo
	own  bool
	// built has the last good form of each name. failed has the names whose last build
	// failed, whether or not built has a form of them.
	built  map[string]*memo.Built
	failed map[string]failure
	set    resource.Set
}

// refresh builds a resource as a view has it, and returns the form before, which the
// caller releases. If the build fails, built keeps its form, and refresh returns nil.
func (t *table) refresh(v *mesh.View, name string) (last *memo.Built) {
	built, err := t.lookUpOrBuild(v, name)
	if err != nil {
		t.failed = t.noteFailure(t.failed, name, err)
		return nil
	}
	t.clearFailure(t.failed, name)
	if last = t.built[name]; t.built == nil {
		t.built = map[string]*memo.Built{}
	}
	t.built[name] = built
	return last
}

func (t *table) lookUpOrBuild(v *mesh.View, name string) (*memo.Built, error) {
	switch {
	case t.memo == nil:
		return memo.Alone(v, t.generator, name)
	case t.own:
		return t.memo.BuildOwn(v, t.generator, name)
	}
	return t.memo.Build(v, t.generator, name)
}

// noteFailure adds the failure of a resource to among, which it makes if nil, and returns among.
func (t *table) noteFailure(among map[string]failure, name string, err error) map[string]failure {
	if among == nil {
		among = map[string]failure{}
	}
	among[name] = t.failures.noted(among[name], t.typeName, name, err, t.built[name].Reads())
	return among
}

func (t *table) clearFailure(among map[string]failure, name string) {
	if was, failed := among[name]; failed {
		t.failures.cleared(was)
		delete(among, name)
	}
}

// keepIfSame returns r, or the present resource if both have the same version.
func keepIfSame(there, r *resource.Resource) *resource.Resource {
	if r != nil && there != nil && there.Version == r.Version {
		return there
	}
	return r
}

// close gives up the failures.
func (t *table) close() {
	for name := range t.failed {
		t.clearFailure(t.failed, name)
	}
}
