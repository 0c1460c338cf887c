package mesh

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// SecretParts says what a stored secret can be used for. It has none of the content, so a
// replaced secret changes no resource that refers to it.
type SecretParts struct {
	// Pair: it has a certificate and its key. Roots: it has CA certificates. Revoked: it
	// has a revocation list.
	Pair, Roots, Revoked bool
}

// SecretRow is a secret that this server can open, of the store or of a cluster. It is never
// modified.
type SecretRow struct {
	SecretParts
	object *config.Config
	ring   *seal.Ring // opens a secret of a cluster; nil for one of the store
}

// Key is the key of the secret object.
func (r *SecretRow) Key() config.Key { return r.object.Key() }

// Object returns a secret of a cluster, which Configs lacks; nil for one of the store. Its spec is
// sealed.
func (r *SecretRow) Object() *config.Config {
	if r == nil || r.ring == nil {
		return nil
	}
	return r.object
}

// secrets holds the secrets that this server can open, by SecretKey.
type secrets struct{ tableOf[*SecretRow] }

var secretRows = secrets{tableOf[*SecretRow]{Secrets}}

// secretPath is the prefix of the paths of secrets.
var secretPath = config.KindPath(schema.Secret)

// SecretKey is the key of a secret in the table Secrets.
func SecretKey(namespace, name string) string { return namespace + "/" + name }

func splitSecretKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}

func (t secrets) follow(from, to *PushContext) {
	put := func(object *config.Config) {
		row := secretRow(object, to.inputs.SealingKeys)
		t.put(to, SecretKey(object.Namespace, object.Name), row, row != nil)
	}
	// putOther puts a secret of a cluster where the store has none.
	putOther := func(key string) {
		row := clusterSecretRow(to.inputs.ClusterSecrets, key)
		t.put(to, key, row, row != nil)
	}
	if from.inputs.SealingKeys != to.inputs.SealingKeys {
		for object := range to.inputs.Configs.List(schema.Secret, "") {
			has := t.rowsOf(to).Value(SecretKey(object.Namespace, object.Name)) != nil
			if has != opens(to.inputs.SealingKeys, object) {
				put(object)
			}
		}
	}
	eachObject(from, to, secretPath, func(c pmap.Change[*config.Config]) {
		if c.HasNew {
			put(c.New)
		} else {
			putOther(SecretKey(c.Old.Namespace, c.Old.Name))
		}
	})
	for c := range pmap.Diff(from.inputs.ClusterSecrets.Secrets(), to.inputs.ClusterSecrets.Secrets()) {
		namespace, name := splitSecretKey(c.Key)
		if to.inputs.Configs.Get(config.Key{Kind: schema.Secret, Namespace: namespace, Name: name}) == nil {
			putOther(c.Key)
		}
	}
}

// clusterSecretRow returns the row of a secret of a cluster, nil for none.
func clusterSecretRow(of clustersecret.Set, key string) *SecretRow {
	row := secretRow(of.Secrets().Value(key), of.Ring())
	if row != nil {
		row.ring = of.Ring()
	}
	return row
}

// secretRow returns the row of a secret, nil if the ring cannot open it.
func secretRow(object *config.Config, ring *seal.Ring) *SecretRow {
	if !opens(ring, object) {
		return nil
	}
	spec := object.Spec.(*secret.Spec)
	row := &SecretRow{object: object}
	_, _, row.Pair = spec.Pair()
	_, row.Roots = spec.Roots()
	_, row.Revoked = spec.Revoked()
	return row
}

func opens(ring *seal.Ring, object *config.Config) bool {
	if object == nil || ring == nil {
		return false
	}
	spec, ok := object.Spec.(*secret.Spec)
	return ok && sealing.Opens(*ring, spec)
}

// The queries of a secret.
const (
	secretParts   = ""
	secretContent = "content"
)

func (t secrets) answer(v *View, key, args string) any {
	row := t.rowsOf(v.push).Value(key)
	if args == secretContent {
		return row
	}
	switch {
	case row != nil:
		return row.SecretParts
	case v.class.Returning:
		return SecretParts{Pair: true, Roots: true}
	}
	return SecretParts{}
}

// unreadSecrets says whether secrets of a proxy's namespace are not read yet.
func (p *PushContext) unreadSecrets(proxy *discovery.Proxy) bool {
	return p.inputs.ClusterSecrets.Unread().Value(proxy.Namespace)
}

// Secret says what a secret of the proxy's own namespace can be used for. The answer is
// zero if the secret does not exist or this server cannot open it. If that is not known, as the
// secrets of a cluster are not read yet, a proxy of a Returning class may have the secret: it keeps
// what is made of it, and OpenSecret has no data.
func (v *View) Secret(name string) SecretParts {
	return v.ask(Secrets, v.ownSecret(name), secretParts).(SecretParts)
}

// OpenSecret returns the data of a secret of the proxy's own namespace, nil for none.
// Only a workload's own resources may call it, since a class's resources are shared.
func (v *View) OpenSecret(name string) (data map[string][]byte, of *secret.Spec, err error) {
	if v.workload == nil {
		return nil, nil, fmt.Errorf("the content of secret %s is asked for a class", name)
	}
	row := v.ask(Secrets, v.ownSecret(name), secretContent).(*SecretRow)
	if row == nil {
		return nil, nil, nil
	}
	ring := row.ring
	if ring == nil {
		ring = v.push.inputs.SealingKeys
	}
	data, err = sealing.Open(*ring, row.object)
	return data, row.object.Spec.(*secret.Spec), err
}

// ClusterSecret returns a secret of a cluster, for the proxy's own namespace, with its spec sealed;
// nil if there is none, or if the store has one of this name.
func (v *View) ClusterSecret(name string) *config.Config {
	return v.ask(Secrets, v.ownSecret(name), secretContent).(*SecretRow).Object()
}

// MayHaveSecrets says whether the workload may receive the secrets of its namespace. Only
// a workload's own resources may ask.
func (v *View) MayHaveSecrets() bool { return v.ask(Self, selfSecrets, "").(bool) }

// CertificateFiles returns the paths of the workload's own certificate files. Only a
// workload's own resources may ask.
func (v *View) CertificateFiles() discovery.CertificateFiles {
	return v.ask(Self, selfFiles, "").(discovery.CertificateFiles)
}

// SystemRoots is the path of the CA file that the workload's machine trusts, empty if
// unknown.
func (v *View) SystemRoots() string { return v.ask(Self, selfRoots, "").(string) }

// ownSecret returns the key of a secret of the proxy's namespace. It records the
// namespace, so proxies of other namespaces do not share what is built from the secret.
func (v *View) ownSecret(name string) string {
	v.InNamespace(v.class.Namespace)
	return SecretKey(v.class.Namespace, name)
}

// Secrets iterates over the secrets that were added, removed or changed, by SecretKey. A
// generator's Affected uses it to name the resources that are absent for want of a
// secret.
func (d Delta) Secrets() iter.Seq[pmap.Change[*SecretRow]] { return secretRows.diff(d.from, d.to) }

// ChangedSecrets returns the names, in order, of the secrets of the proxy's namespace
// that are in Delta.Secrets and whose parts changed.
func (v *View) ChangedSecrets(d Delta) []string {
	var out []string
	for c := range d.Secrets() {
		namespace, name := splitSecretKey(c.Key)
		if namespace == v.class.Namespace && (!c.HasOld || !c.HasNew || c.Old.SecretParts != c.New.SecretParts) {
			out = append(out, name)
		}
	}
	return slices.Clip(out)
}
