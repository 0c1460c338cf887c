package objects

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func newImportCommand(env *environment) *cobra.Command {
	o := applyOptions{verb: batch.Restore, files: fileFlags{exported: true}}
	c := &cobra.Command{
		Use:   "import -f FILE|DIR|-",
		Short: "Take what export, or kubectl, has written, as one change",
		Long: `Put back what portolan export has written, into an empty store or another, or take
what kubectl get -o yaml has written of a cluster with Istio: all objects as one
change, or, where one of them has a fault, none. It is an apply that keeps creation times: objects that are created are as old as they were, so
that of those that contend the same one wins. Objects that are there already keep
their own; those that are in no file stay. The condition Healthy in the status of a
WorkloadEntry is taken over, unless the store has a report of its health: a machine that
gets traffic goes on getting it. The rest of statuses, resourceVersions, uids,
generations and managedFields are ignored.

A file may have objects whose security has no effect here yet, such as a MeshConfig
with serviceEntryVisibility. These are refused without --accept-unserved: they would
not be as secure as they look.

--dry-run=server shows what would change; --wait waits until the proxies have taken
it, in parts part by part.` + chunksHelp + waitHelp,
		Example: `  portolan import -f mesh.yaml
  portolan import -f mesh.yaml --dry-run=server
  portolan export --server http://127.0.0.1:15080 | portolan import -f - --server http://127.0.0.1:25080`,
		Args: filesOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.files.none() {
				return exit.With(exit.Usage, errors.New("name what to import: -f FILE, -f DIR, -f URL, or -f - for stdin"))
			}
			if err := cmp.Or(o.check(c), o.checkChunks()); err != nil {
				return err
			}
			return o.run(c.Context(), env)
		},
	}
	o.files.register(c, "import")
	o.writeFlags.register(c)
	o.registerChunks(c)
	c.Flags().BoolVar(&o.acceptUnserved, "accept-unserved", false, "take objects whose security is not served yet, without effect")
	return c
}

// secure reports security settings without effect in objects that were never in a store of
// Portolan.
func (m *manifest) secure() {
	for _, d := range m.documents {
		if !ofKubernetes(d) {
			continue
		}
		insecure, _ := m.schemas.Kind(d.Config.GroupVersionKind).UnservedSecurity(d.Config) // all faults are named elsewhere
		for _, f := range insecure {
			m.fault(d.Fault(f.Field, f.Message+" (leave it out; --accept-unserved takes it, without effect)"))
		}
	}
}

// healthAlone returns the status of a WorkloadEntry with its condition Healthy alone, which the server takes
// over; nil without one.
func healthAlone(object *config.Config) proto.Message {
	status, ok := object.Status.(*metav1alpha1.IstioStatus)
	if !ok || object.GroupVersionKind != schema.WorkloadEntry {
		return nil
	}
	one := health.In(status.GetConditions())
	if one == nil {
		return nil
	}
	return &metav1alpha1.IstioStatus{Conditions: []*metav1alpha1.IstioCondition{one}}
}

// lastApplied is where kubectl keeps the whole object a second time.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// ofKubernetes says whether kubectl may have written a document: it has a uid, which export
// leaves out, or the annotation of kubectl apply.
func ofKubernetes(d config.Document) bool {
	_, applied := d.Config.Annotations[lastApplied]
	return d.Config.UID != "" || applied
}

// hintImport adds a hint to import for files of another store or of Kubernetes. An object
// whose version does not exist here may be from one.
func hintImport(err error, causes []metav1.StatusCause) error {
	for _, cause := range causes {
		if cli.IsA(cause, metav1.StatusReasonConflict) && strings.Contains(cause.Message, " is gone ") {
			return fmt.Errorf("%w\nportolan import takes files of another store, or of Kubernetes: it ignores their resourceVersions", err)
		}
	}
	return err
}
