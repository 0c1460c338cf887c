package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// soon is how long before its end a certificate gets a warning.
const soon = 30 * 24 * time.Hour

// Stage says whether a certificate is valid.
type Stage byte

// The stages. An Early certificate is not valid yet. An Ending one has less than 30 days left.
const (
	Valid Stage = iota
	Early
	Ending
	Ended
)

// StageOf returns the stage at a minute since 1970. If the minute is 0, the certificate is
// Valid.
func StageOf(c secret.Certificate, minute int64) Stage {
	now := time.Unix(minute*60, 0)
	switch left := c.NotAfter.Sub(now); {
	case minute == 0:
		return Valid
	case left <= 0:
		return Ended
	case left < soon:
		return Ending
	case c.NotBefore.Sub(now) >= time.Minute:
		return Early
	}
	return Valid
}

// Unopened reports whether the server lacks the sealing key of a secret.
func Unopened(spec *secret.Spec, f Facts) bool {
	ring := f.Mesh.Inputs().SealingKeys
	return spec.Sealed.Box != nil && ring != nil && !sealing.Opens(*ring, spec)
}

// UnreadSecrets says why the secrets of a namespace are not read from clusters; empty if they are,
// or no cluster is asked for them. never says that some were not read since the server started: then
// it is not known which there are.
func (j *Judge) UnreadSecrets(namespace string) (why string, never bool) {
	j.Read(UnreadSecretsRow, namespace)
	of := j.Mesh().Inputs().ClusterSecrets
	if why, never = of.Faults().Value(namespace), of.Unread().Value(namespace); never && why == "" {
		why = cluster.ErrUnanswered.Error()
	}
	return why, never
}

// UnknownSecret says that a secret of a namespace may exist or not, as UnreadSecrets says it was never
// read, and what follows.
func UnknownSecret(name, namespace, effect string) string {
	return fmt.Sprintf("it is not known whether secret %s exists in the namespace %s: its secrets were not read since the server started. %s", name, namespace, effect)
}

// OrReadIt returns what else to do about a secret that is missing in a namespace: have it read from a
// cluster. It is empty where UnreadSecrets says why none is read, and where no cluster is followed:
// flags name none, and the object that names the secret comes from none.
func (j *Judge) OrReadIt(object *config.Config, namespace string) string {
	why, _ := j.UnreadSecrets(namespace)
	switch {
	case why != "" || j.Facts().FlagClusters.Len() == 0 && !strings.HasPrefix(object.Source, "kube://"):
		return ""
	case j.Facts().SecretNamespaces.Value(namespace):
		return fmt.Sprintf(", or store it in the namespace %s of a cluster whose secrets are read there (portolan source list)", namespace)
	}
	return fmt.Sprintf(", or store it in the namespace %s of a cluster, and name that namespace in serve --secrets-kube", namespace)
}

func changedUnread(from, to Facts, yield func(Row) bool) bool {
	before, after := from.Mesh.Inputs().ClusterSecrets, to.Mesh.Inputs().ClusterSecrets
	return changedNamespaces(before.Faults(), after.Faults(), yield) && changedNamespaces(before.Unread(), after.Unread(), yield)
}

// changedNamespaces yields the rows of the namespaces at which two maps differ.
func changedNamespaces[V comparable](from, to pmap.Map[V], yield func(Row) bool) bool {
	for c := range pmap.Diff(from, to) {
		if !yield(UnreadSecretsRow + Row(c.Key)) {
			return false
		}
	}
	return true
}

// changedSecrets iterates over the rows of secrets that can be opened in only one of two facts,
// or that have a certificate in another stage.
func changedSecrets(from, to Facts, yield func(Row) bool) bool {
	if from.Minute == to.Minute && from.Mesh.Inputs().SealingKeys == to.Mesh.Inputs().SealingKeys {
		return true
	}
	for object := range to.Mesh.Inputs().Configs.List(schema.Secret, "") {
		spec, ok := object.Spec.(*secret.Spec)
		if !ok || spec.Sealed == nil {
			continue
		}
		differs := Unopened(spec, from) != Unopened(spec, to) || slices.ContainsFunc(spec.Sealed.Certificates, func(c secret.Certificate) bool {
			return StageOf(c, from.Minute) != StageOf(c, to.Minute)
		})
		if differs && !yield(SecretRow+Row(object.Key().Path())) {
			return false
		}
	}
	return true
}
