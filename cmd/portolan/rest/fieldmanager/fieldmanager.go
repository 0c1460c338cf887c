package fieldmanager

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// BeforeFirstApply is the manager of what an object has before its first server-side apply.
const BeforeFirstApply = "before-first-apply"

// Managers merges applied objects, and keeps the managed fields of others. It is safe for
// concurrent use.
type Managers struct {
	types    func() (managedfields.TypeConverter, error)
	managers sync.Map // of schema.GroupVersionKind to *managedfields.FieldManager
}

// New returns the Managers of the kinds that some definitions describe. It calls definitions at
// the first apply.
func New(definitions func() map[string]*spec.Schema) *Managers {
	return &Managers{types: sync.OnceValues(func() (managedfields.TypeConverter, error) {
		return managedfields.NewTypeConverter(definitions(), false)
	})}
}

// Apply returns the object that results from an apply by a manager: live with the fields of
// applied, without those that the manager has applied before and applies no more, and with
// the managed fields. An empty live stands for no object. Without force, a field that another
// manager has set to another value is a conflict: an apierrors.StatusError with a cause for
// each. Other errors are StatusErrors too, or say what of the objects does not fit its kind.
// Neither argument may be used afterwards.
func (m *Managers) Apply(live, applied *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
	of, err := m.manager(applied.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if len(live.Object) == 0 {
		live.SetGroupVersionKind(applied.GroupVersionKind())
	}
	merged, err := of.Apply(live, applied, manager, force)
	if err != nil {
		return nil, err
	}
	if merged == nil { // nothing changes
		return live, nil
	}
	return merged.(*unstructured.Unstructured), nil
}

// Update returns the managed fields of written, which a manager puts in the place of live:
// what differs is the manager's. Managed fields in written stand for those of live, as when a
// client edits them; an empty list takes them all away.
func (m *Managers) Update(live, written *unstructured.Unstructured, manager string) ([]metav1.ManagedFieldsEntry, error) {
	of, err := m.manager(written.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	out, err := of.Update(live, written, manager)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured).GetManagedFields(), nil
}

// Adopt gives what BeforeFirstApply has to a manager, as if that had applied it. A manager that
// knows itself to be the one who made the object so can take fields away again.
func Adopt(live *unstructured.Unstructured, manager string) error {
	return csaupgrade.UpgradeManagedFields(live, sets.New(BeforeFirstApply), manager)
}

// manager returns the library's FieldManager of a kind. All versions of a kind have the same
// fields.
func (m *Managers) manager(of schema.GroupVersionKind) (*managedfields.FieldManager, error) {
	if known, ok := m.managers.Load(of); ok {
		return known.(*managedfields.FieldManager), nil
	}
	types, err := m.types()
	if err != nil {
		return nil, fmt.Errorf("read the definitions of the kinds: %w", err)
	}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{ // nobody manages what servers report
		fieldpath.APIVersion(of.GroupVersion().String()): fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie("status"))),
	}
	made, err := managedfields.NewDefaultCRDFieldManager(types, versions{}, versions{}, versions{}, of, of.GroupVersion(), "", reset)
	if err != nil {
		return nil, fmt.Errorf("make the field manager of %s: %w", of, err)
	}
	known, _ := m.managers.LoadOrStore(of, made)
	return known.(*managedfields.FieldManager), nil
}

// versions makes objects, and converts them between the versions of a kind, which differ by
// name alone.
type versions struct{}

// New implements runtime.ObjectCreater.
func (versions) New(of schema.GroupVersionKind) (runtime.Object, error) {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(of)
	return out, nil
}

// Default implements runtime.ObjectDefaulter: no kind has defaults that are stored.
func (versions) Default(runtime.Object) {}

// ConvertToVersion implements runtime.ObjectConvertor.
func (versions) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is no object of the API", in)
	}
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from.GroupVersionKind()})
	if !ok {
		return nil, fmt.Errorf("%s has no version of %s", from.GroupVersionKind(), target)
	}
	if to == from.GroupVersionKind() {
		return from, nil
	}
	out := &unstructured.Unstructured{Object: maps.Clone(from.Object)} // what is below stays shared: only the top changes
	out.SetGroupVersionKind(to)
	return out, nil
}

// Convert implements runtime.ObjectConvertor. Nothing calls it.
func (versions) Convert(in, out, _ any) error { return fmt.Errorf("cannot convert %T to %T", in, out) }

// ConvertFieldLabel implements runtime.ObjectConvertor. Nothing calls it.
func (versions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Name returns the name of the manager of a request: what it says itself, else the program of
// its User-Agent, as in Kubernetes.
func Name(given, userAgent string) string {
	if given != "" {
		return given
	}
	program, _, _ := strings.Cut(userAgent, "/")
	return program[:min(len(program), validation.FieldManagerMaxLength)]
}
