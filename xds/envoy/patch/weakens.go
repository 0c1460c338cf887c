package patch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/names"
)

// Weakens finds the patches that take security away, or change it. These remove, replace or merge into
// a filter that authenticates or authorizes, its connection manager, or a transport socket. Others give
// such a filter other settings for some routes. A patch that only adds such a filter takes nothing away,
// and is not found. A patch of BOOTSTRAP is found if it says who the proxy is, whom it obeys, who may
// command it or which code it loads.
func Weakens(spec *networking.EnvoyFilter) []Finding {
	var out []Finding
	for i, of := range spec.GetConfigPatches() {
		w := weakness{replaceLists: of.GetPatch().GetOperation() == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST}
		path := "configPatches[" + strconv.Itoa(i) + "]"
		if verb, changes := changing[of.GetPatch().GetOperation()]; changes {
			w.changes = true
			w.match(of, path+".match", verb)
		}
		if of.GetApplyTo() == networking.EnvoyFilter_BOOTSTRAP {
			w.bootstrap(of.GetPatch().GetValue(), path+".patch.value")
		}
		w.value(of.GetPatch().GetValue(), path+".patch.value")
		out = append(out, w.found...)
	}
	return out
}

// changing are the operations that change what is there, and what they do to it.
var changing = map[networking.EnvoyFilter_Patch_Operation]string{
	networking.EnvoyFilter_Patch_REMOVE:                 "removes",
	networking.EnvoyFilter_Patch_REPLACE:                "replaces",
	networking.EnvoyFilter_Patch_MERGE:                  "changes",
	networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST: "changes",
}

// weakness looks at one patch.
type weakness struct {
	// changes says that the operation changes what is there, replaceLists that it replaces lists.
	changes, replaceLists bool
	found                 []Finding
}

func (w *weakness) note(path, format string, args ...any) {
	w.found = append(w.found, Finding{path, fmt.Sprintf(format, args...)})
}

// match looks at the filter that the patch asks for.
func (w *weakness) match(of *networking.EnvoyFilter_EnvoyConfigObjectPatch, path, verb string) {
	asked := of.GetMatch().GetListener().GetFilterChain().GetFilter()
	switch of.GetApplyTo() {
	case networking.EnvoyFilter_HTTP_FILTER:
		if name := asked.GetSubFilter().GetName(); secures(httpFilter.canonical(name)) {
			w.note(path, "%s the filter %s, which decides who may do what", verb, name)
		}
	case networking.EnvoyFilter_NETWORK_FILTER:
		name := networkFilter.canonical(asked.GetName())
		switch {
		case secures(name):
			w.note(path, "%s the filter %s, which decides who may connect", verb, asked.GetName())
		case name == "" && verb == "changes": // it merges by the type of the configuration
			if of := configOf(of.GetPatch().GetValue()); secures(typeName(of)) {
				w.note(path, "changes the filters of type %s, which decide who may connect", typeName(of))
			}
		case name == connectionManager && verb != "changes":
			w.note(path, "%s the connection manager with its filters, which decide who may do what", verb)
		}
	}
}

// bootstrap looks for what of a bootstrap the owner of a machine decides.
func (w *weakness) bootstrap(value *structpb.Struct, path string) {
	for _, name := range slices.Sorted(maps.Keys(value.GetFields())) {
		member, at := value.GetFields()[name].GetStructValue(), path+"."+name
		if field := protoName(name); names.GuardedBootstrap(field) {
			w.note(at, "changes the bootstrap in who the proxy is, whom it obeys, who may command it or which code it loads")
		} else if field == "static_resources" {
			for i, one := range member.GetFields()["clusters"].GetListValue().GetValues() {
				if cluster := one.GetStructValue().GetFields()["name"].GetStringValue(); names.GuardedCluster(cluster) {
					w.note(at+".clusters["+strconv.Itoa(i)+"]", "changes %s, through which the proxy gets its configuration or its certificates", cluster)
				}
			}
		}
	}
}

// configOf returns the typed_config of a filter, nil for none.
func configOf(filter *structpb.Struct) *structpb.Struct {
	for name, member := range filter.GetFields() {
		if jsonName(name) == "typedConfig" {
			return member.GetStructValue()
		}
	}
	return nil
}

// lists are those whose elements protect something.
var lists = []string{"filterChains", "filters", "httpFilters", "listenerFilters"}

// value looks for what a patch sets.
func (w *weakness) value(value *structpb.Struct, path string) {
	for _, name := range slices.Sorted(maps.Keys(value.GetFields())) {
		member, at := value.GetFields()[name], path+"."+name
		switch field := jsonName(name); {
		case w.changes && (field == "transportSocket" || field == "transportSocketMatches"):
			w.note(at, "changes how connections are encrypted and authenticated")
			continue
		case w.replaceLists && slices.Contains(lists, field):
			w.note(at, "replaces the whole list, with what in it decides who may do what")
		case field == "typedPerFilterConfig" || field == "perFilterConfig":
			for _, key := range slices.Sorted(maps.Keys(member.GetStructValue().GetFields())) {
				if of := member.GetStructValue().GetFields()[key].GetStructValue(); secures(httpFilter.canonical(key)) || secures(typeName(of)) {
					w.note(at+"["+strconv.Quote(key)+"]", "has other settings of a filter that decides who may do what, for some requests")
				}
			}
			continue
		}
		w.value(member.GetStructValue(), at)
		for i, one := range member.GetListValue().GetValues() {
			w.value(one.GetStructValue(), at+"["+strconv.Itoa(i)+"]")
		}
	}
}

// jsonName returns the name of a field in camel case: transport_socket and transportSocket are one.
func jsonName(field string) string {
	parts := strings.Split(field, "_")
	for i, part := range parts[1:] {
		if part != "" {
			parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return strings.Join(parts, "")
}

// protoName returns the name of a field in protobuf: the inverse of jsonName.
func protoName(field string) string {
	var out strings.Builder
	for _, r := range field {
		if 'A' <= r && r <= 'Z' {
			out.WriteByte('_')
			r += 'a' - 'A'
		}
		out.WriteRune(r)
	}
	return out.String()
}

func typeName(of *structpb.Struct) string {
	url := of.GetFields()[typeField].GetStringValue()
	return url[strings.LastIndexByte(url, '/')+1:]
}

// secures says whether a filter, or a type of its configuration, decides who may do what.
func secures(name string) bool {
	if names.PolicyFilter(name) != "" {
		return true
	}
	return strings.HasPrefix(name, "envoy.") && slices.ContainsFunc(strings.Split(name, "."), func(part string) bool {
		return part == "rbac" || part == "jwt_authn" || part == "ext_authz"
	})
}
