package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// OfMesh leaves out the kinds of Kubernetes' own, which mean nothing to the mesh.
func OfMesh(schemas schema.Set) schema.Set {
	return schema.NewSet(slices.DeleteFunc(slices.Clone(schemas.All()), func(s *schema.Schema) bool { return BesideMesh(s.GroupVersionKind) })...)
}

// WithSide returns kinds with those of Kubernetes' own, which are kept beside the mesh.
func WithSide(schemas schema.Set) schema.Set { return OfMesh(schemas).With(schema.Side()) }

// BesideMesh says whether a kind is kept beside the mesh, and so has no history.
func BesideMesh(kind config.GroupVersionKind) bool { return schema.Side().Kind(kind) != nil }

// KindNamed finds a kind by one of its names, with or without its group: vs,
// virtualservices.networking.istio.io.
func KindNamed(schemas schema.Set, name string) (*schema.Schema, error) {
	short, group, qualified := strings.Cut(name, ".")
	if kind := schemas.Named(short); kind != nil && (!qualified || strings.EqualFold(group, kind.Group)) {
		return kind, nil
	}
	if where := hintCommand(name); where != "" {
		return nil, fmt.Errorf("unknown kind %q: %s; portolan api-resources shows the kinds served", name, where)
	}
	var meant []string
	for _, kind := range schemas.All() {
		if spelling.Similar(short, kind.Plural) || spelling.Similar(short, kind.Singular) {
			meant = append(meant, kind.Plural)
		}
	}
	return nil, fmt.Errorf("unknown kind %q: see portolan api-resources for those served%s", name, OrDidYouMean(meant))
}

// hintCommand returns a hint to the command for something that users of other tools expect to be
// a kind.
func hintCommand(name string) string {
	switch strings.ToLower(name) {
	case "service", "services", "svc", "endpoint", "endpoints", "ep", "host", "hosts":
		return "portolan describe service HOST shows what a host is, and its endpoints"
	case "proxy", "proxies", "node", "nodes", "pod", "pods", "po":
		return "portolan proxy status shows the proxies"
	}
	return ""
}
