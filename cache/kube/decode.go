package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// lastApplied is where kubectl keeps the whole object a second time.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// decoder makes objects of a kind. The result depends neither on other objects nor on the
// past.
type decoder struct {
	kind           *schema.Schema
	schemas        schema.Set
	domain         string
	acceptUnserved bool
}

// decode makes the object that is served of one of the cluster, with the health of a WorkloadEntry
// (WithHealth). Its error has all faults.
func (d decoder) decode(o cluster.Object) (*config.Config, error) {
	from, err := d.document(o)
	if err != nil {
		return nil, err
	}
	annotations := from.GetAnnotations()
	delete(annotations, lastApplied)
	delete(annotations, config.SourceAnnotation)
	created := o.GetCreationTimestamp()
	text, err := json.Marshal(map[string]any{
		"apiVersion": from.GetAPIVersion(), "kind": from.GetKind(), "spec": specOf(from),
		"metadata": map[string]any{
			"name": o.GetName(), "namespace": o.GetNamespace(), "labels": o.GetLabels(), "annotations": annotations,
			"creationTimestamp": created.UTC().Format("2006-01-02T15:04:05Z"), "uid": string(o.GetUID()), "generation": o.GetGeneration(),
		},
	})
	if err != nil {
		return nil, err
	}
	object, err := config.FromJSON(text, d.schemas.Type)
	if err != nil {
		return nil, joined(ofFields(err))
	}
	if err := d.check(object); err != nil {
		return nil, err
	}
	object.Domain = d.domain
	if err := Stamp(object); err != nil {
		return nil, err
	}
	if report := reportIn(from); report != nil && isWorkload(object.GroupVersionKind) {
		report.UID = object.UID
		object = WithHealth(object, report)
	}
	return object, nil
}

// document returns an object as its document has it. Those of Kubernetes' own kinds have Go types.
func (d decoder) document(o cluster.Object) (*unstructured.Unstructured, error) {
	if from, ok := o.(*unstructured.Unstructured); ok {
		return from, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	from := &unstructured.Unstructured{Object: content}
	from.SetAPIVersion(d.kind.APIVersion())
	from.SetKind(d.kind.Kind)
	return from, nil
}

// specOf returns the spec, an empty one if there is none.
func specOf(o *unstructured.Unstructured) any {
	if spec := o.Object["spec"]; spec != nil {
		return spec
	}
	return map[string]any{}
}

func (d decoder) check(object *config.Config) error {
	insecure, err := d.kind.UnservedSecurity(object)
	faults := config.Faults(err)
	if len(faults) > 0 || d.acceptUnserved {
		return joined(faults)
	}
	for _, f := range insecure {
		faults = append(faults, errors.New(f.Error()+" (a server with --accept-unserved takes it, without effect)"))
	}
	return joined(faults)
}

// Stamp sets the version, which follows from the content: so a status that somebody
// writes is no change, and the versions are the same on all servers. It is text that is
// not a number, so nobody takes it for a revision of the store.
func Stamp(object *config.Config) error {
	object.ResourceVersion, object.Status = "", nil
	text, err := config.ToJSON(object, "")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	object.ResourceVersion = "k" + hex.EncodeToString(sum[:10])
	return nil
}

// ofFields returns the faults of an object without its name, which a cache.Problem has.
func ofFields(err error) []error {
	var out []error
	for _, one := range config.Faults(err) {
		if fault := (*config.DecodeError)(nil); errors.As(one, &fault) {
			nameless := *fault
			nameless.Object = ""
			one = &nameless
		}
		out = append(out, one)
	}
	return out
}

// joined makes one error of several, nil of none.
func joined(all []error) error {
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.ReplaceAll(errlist.OneLine(all), "\u00a0", " ")) // as protobuf writes them
}
