package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// ProxyConfigPath is the path of a ProxyConfig. Its parameters are node (a node id, or a part
// that identifies one proxy), type (such as CDS, may be repeated; all types without it),
// namespace (consider only its proxies), differing=true (return only what differs from what the
// proxy should have) and server (the id of the server that is meant to answer).
const ProxyConfigPath = "/apis/portolan.io/v1/proxyconfig"

// ProxyConfig is what a proxy should have and has. Its JSON form is an API.
type ProxyConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Server is the id of the server to which the proxy is connected.
	Server string `json:"server,omitempty"`
	// Revision is the store's revision that the intended resources derive from.
	Revision int64          `json:"revision"`
	Proxy    ConnectedProxy `json:"proxy"`
	Types    []ProxyType    `json:"types"` // last, since they are written one by one
}

// ConnectedProxy is a proxy that is connected to a server.
type ConnectedProxy struct {
	Node      string `json:"node"`
	Type      string `json:"type"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Variant   string `json:"variant"`
	Envoy     string `json:"envoy,omitempty"`
}

// ProxyType has the resources of one type.
type ProxyType struct {
	Name    string `json:"name"`
	TypeURL string `json:"typeURL"`
	// Requested means that the proxy has requested the type.
	Requested bool `json:"requested"`
	// Total counts the resources that the proxy should have among those that it requested.
	Total     int             `json:"total"`
	Resources []ProxyResource `json:"resources"` // last, since they are written one by one
}

// ProxyResource is one resource of a proxy.
type ProxyResource struct {
	Name string `json:"name"`
	// State is SYNCED if the proxy has what it should have, REJECTED if it rejected that, and
	// STALE otherwise.
	State protocol.State `json:"state"`
	// Version and Config are what the proxy has acknowledged, absent if it has nothing. Config
	// is the message, with its type in "@type".
	Version string          `json:"version,omitempty"`
	Config  json.RawMessage `json:"config,omitempty"`
	// IntendedVersion and Intended are what the proxy should have, if that differs; absent if
	// it should have nothing.
	IntendedVersion string          `json:"intendedVersion,omitempty"`
	Intended        json.RawMessage `json:"intended,omitempty"`
	// Unknown means that the proxy may have something else than Config. InFlight means that it
	// has not answered a response with this resource yet.
	Unknown  bool `json:"unknown,omitempty"`
	InFlight bool `json:"inFlight,omitempty"`
	// RejectedRevision and Message are from the proxy's rejection of Intended.
	RejectedRevision int64  `json:"rejectedRevision,omitempty"`
	Message          string `json:"message,omitempty"`
	// Secret replaces Config for a secret.
	Secret *ProxySecret `json:"secret,omitempty"`
	// Objects are the objects that the resource was built from.
	Objects []string `json:"objects,omitempty"`
	// Patches are the patches of EnvoyFilters that match what the proxy should have, in their order.
	Patches []ProxyPatch `json:"patches,omitempty"`
}

// ProxyPatch is what became of a patch of an EnvoyFilter on a resource.
type ProxyPatch struct {
	// EnvoyFilter is namespace/name, and Field the patch in it, such as "spec.configPatches[0]".
	EnvoyFilter string `json:"envoyFilter"`
	Field       string `json:"field"`
	// Error says why the patch could not be applied, and changed nothing; empty if it applied.
	Error string `json:"error,omitempty"`
	// Rejected says that the proxy refused the resource because of the EnvoyFilter: it goes on with
	// what it had before.
	Rejected bool `json:"rejected,omitempty"`
}

// Has returns the message that the proxy has acknowledged, nil if none.
func (r *ProxyResource) Has() (proto.Message, error) { return messageOf(r.Config) }

// Should returns the message that the proxy should have, nil if none.
func (r *ProxyResource) Should() (proto.Message, error) {
	if r.State == protocol.Synced {
		return messageOf(r.Config)
	}
	return messageOf(r.Intended)
}

func messageOf(config json.RawMessage) (proto.Message, error) {
	if len(config) == 0 {
		return nil, nil
	}
	var body anypb.Any
	if err := protojson.Unmarshal(config, &body); err != nil {
		return nil, err
	}
	return body.UnmarshalNew()
}

// Holder knows what connected proxies and control planes have. An *xds.DiscoveryServer
// implements it.
type Holder interface {
	Clients() []*discovery.Proxy
	Holdings(ctx context.Context, node string, types func(name string) bool) (*xds.Holdings, error)
}

// Others knows the proxies of other servers; a *progress.View implements it.
type Others interface{ Elsewhere() []progress.Place }

// ServeProxyConfig serves what a proxy should have and has. If the proxy is connected to
// another server, it answers 421 and names that server, see ConnectedElsewhere. id is the id of
// this server. The work follows the size of what the proxy has.
func ServeProxyConfig(server Holder, others Others, id string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		query := r.URL.Query()
		node, err := namedNode(r, ProxyConfigPath, id, server.Clients(), others.Elsewhere())
		if err != nil {
			return err
		}
		var types func(string) bool
		if asked := query["type"]; len(asked) > 0 {
			types = func(name string) bool { return slices.Contains(asked, name) }
		}
		h, err := server.Holdings(r.Context(), node, withNeeders(types))
		switch {
		case errors.Is(err, xds.ErrNotConnected):
			return refusal.Unavailable(fmt.Sprintf("proxy %s has just disconnected: try again in a moment", node))
		case err != nil:
			return refusal.Unavailable(fmt.Sprintf("proxy %s: %v", node, err))
		}
		w.Header().Set("Content-Type", "application/json")
		_ = writeProxyConfig(w, h, id, types, query.Get("differing") == "true") // the client is gone
		return nil
	}
}

// meant refuses a request that is for another server than the one of an id.
func meant(query url.Values, id string) error {
	if server := query.Get("server"); server != "" && server != id {
		return refusal.New(http.StatusMisdirectedRequest, metav1.StatusReasonBadRequest, "another server answers here than "+server)
	}
	return nil
}

// Elsewhere knows the proxies of other servers than that of the view.
type Elsewhere struct{ *progress.View }

// Find refuses a request about a proxy, by its node id, name, namespace/name or address, if it
// is connected to another server, or if the request is for another server. See
// ConnectedElsewhere.
func (e Elsewhere) Find(query url.Values, proxy string) error {
	if err := meant(query, e.View.ID); err != nil {
		return err
	}
	for _, place := range e.View.Elsewhere() {
		if p := proxyOf(place.Node); place.Server != "" && (p.ID == proxy || p.IsNamed(proxy)) {
			return elsewhereError(place)
		}
	}
	return nil
}

// Proxies returns the proxies that are connected to other servers, as these report them.
func (e Elsewhere) Proxies() []*discovery.Proxy { return e.View.ProxiesElsewhere() }

// withNeeders adds the types whose resources name secrets, if secrets are asked for. nil means
// all types.
func withNeeders(types func(string) bool) func(string) bool {
	if types == nil || !types("SDS") {
		return types
	}
	return func(name string) bool { return types(name) || namesSecrets(name) }
}

// writeProxyConfig writes a ProxyConfig of some types, one resource at a time: a proxy may have
// megabytes. nil means all types.
func writeProxyConfig(w io.Writer, h *xds.Holdings, id string, types func(string) bool, differing bool) error {
	by, shown := neededBy(h.Types), h.Types
	if types != nil {
		shown = slices.DeleteFunc(slices.Clone(shown), func(t xds.TypeHoldings) bool { return !types(t.Name) })
	}
	out := ProxyConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxyConfig"}, Server: id, Revision: h.Revision,
		Proxy: ConnectedProxy{
			Node: h.Proxy.ID, Type: string(h.Proxy.Type), Name: h.Proxy.Name, Namespace: h.Proxy.Namespace,
			Variant: h.Variant.String(), Envoy: h.Proxy.EnvoyVersion,
		},
		Types: []ProxyType{},
	}
	return writeList(w, out, shown, func(t xds.TypeHoldings) error {
		var listed []xds.Holding
		total := 0
		for _, one := range t.Resources {
			if one.Desired != nil {
				total++
			}
			if !differing || !one.InSync() {
				listed = append(listed, one)
			}
		}
		typ := ProxyType{Name: t.Name, TypeURL: t.TypeURL, Requested: t.Requested, Total: total, Resources: []ProxyResource{}}
		return writeList(w, typ, listed, func(one xds.Holding) error {
			r := proxyResource(t.TypeURL, one)
			if r.Secret != nil {
				r.Secret.NeededBy = by[r.Name]
			}
			text, err := json.Marshal(r)
			if err == nil {
				_, err = w.Write(text)
			}
			return err
		})
	})
}

// writeList writes a value as JSON, which must end with an empty list, and writes elements into
// that list.
func writeList[E any](w io.Writer, value any, elements []E, write func(E) error) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	const end = "]}"
	if _, err := w.Write(bytes.TrimSuffix(text, []byte(end))); err != nil {
		return err
	}
	for i, element := range elements {
		if i > 0 {
			if _, err := io.WriteString(w, ","); err != nil {
				return err
			}
		}
		if err := write(element); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, end)
	return err
}

// secretTypes are the types whose messages must not be shown.
var secretTypes = []string{resource.SecretType}

func proxyResource(typeURL string, h xds.Holding) ProxyResource {
	out := ProxyResource{
		Name: h.Name, State: protocol.Stale, Unknown: h.Unknown, InFlight: h.InFlight, Objects: config.Names(h.Objects),
	}
	for _, p := range h.Patches {
		out.Patches = append(out.Patches, ProxyPatch{p.Filter.Namespace + "/" + p.Filter.Name, p.Field(), p.Err, p.Err == "" && slices.Contains(h.Blamed, p.Filter)})
	}
	switch {
	case h.Rejected != nil:
		out.State, out.RejectedRevision, out.Message = protocol.Rejected, h.Rejected.Revision, h.Rejected.Message
	case h.InSync():
		out.State = protocol.Synced
	}
	if slices.Contains(secretTypes, typeURL) {
		out.Message = "" // the message may quote the secret
		out.Secret = proxySecret(h.Acked)
		return out
	}
	out.Version, out.Config = versionAndJSON(h.Acked)
	if out.State != protocol.Synced {
		out.IntendedVersion, out.Intended = versionAndJSON(h.Desired)
	}
	return out
}

// versionAndJSON returns the version of a resource, and its message as JSON with Envoy's field names.
func versionAndJSON(r *resource.Resource) (string, json.RawMessage) {
	if r == nil {
		return "", nil
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(r.Body)
	if err != nil { // this binary does not have a type in it
		text, _ = json.Marshal(map[string]any{"@type": r.Body.GetTypeUrl(), "error": err.Error()})
	}
	return r.Version, text
}

// findNode returns the node id of the proxy of this server that a text names: by its whole node
// id, else by its name, namespace/name or address, else by a part of its node id. With a
// namespace it considers only proxies of that.
func findNode(text, namespace string, here []*discovery.Proxy, elsewhere []progress.Place) (string, error) {
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
		here = slices.DeleteFunc(slices.Clone(here), func(p *discovery.Proxy) bool { return p.Namespace != namespace })
		elsewhere = slices.DeleteFunc(slices.Clone(elsewhere), func(p progress.Place) bool { return namespaceOf(p.Namespace, p.Node) != namespace })
	}
	found, gone := candidates(text, here, elsewhere)
	switch {
	case len(found) == 0 && len(gone) > 0:
		return "", refusal.NotFound(fmt.Sprintf(
			"proxy %s is connected to no server; it was last seen at %s", gone[0].Node, gone[0].Seen.UTC().Format("2006-01-02 15:04:05 UTC")))
	case len(found) == 0:
		return "", refusal.NotFound(fmt.Sprintf(
			"no proxy%s is called %s, and no node id contains that: see portolan proxy status", where, text))
	case len(found) > 1:
		return "", refusal.BadRequest(fmt.Sprintf("%d proxies are meant by %s, such as %s and %s: give more of the node id", len(found), text, found[0].Node, found[1].Node))
	case found[0].Server != "":
		return "", elsewhereError(found[0])
	}
	return found[0].Node, nil
}

// candidates returns the proxies that a text names: exact matches if there are any, else less
// exact ones. found are connected, gone are not. The Server of a proxy of this server is empty.
func candidates(text string, here []*discovery.Proxy, elsewhere []progress.Place) (found, gone []progress.Place) {
	connected := map[string]bool{}
	for _, p := range here {
		connected[p.ID] = true
	}
	for _, how := range []func(*discovery.Proxy) bool{
		func(p *discovery.Proxy) bool { return p.ID == text },
		func(p *discovery.Proxy) bool { return p.IsNamed(text) },
		func(p *discovery.Proxy) bool { return strings.Contains(p.ID, text) },
	} {
		for _, p := range here {
			if how(p) {
				found = append(found, progress.Place{Node: p.ID})
			}
		}
		for _, place := range elsewhere {
			switch {
			case connected[place.Node] || !how(proxyOf(place.Node)):
			case place.Server == "":
				gone = append(gone, place)
			default:
				found = append(found, place)
			}
		}
		if len(found)+len(gone) > 0 {
			break
		}
	}
	return found, gone
}

// proxyOf describes a proxy from its node id alone.
func proxyOf(node string) *discovery.Proxy {
	p := &discovery.Proxy{ID: node, Name: node}
	if parts := strings.Split(node, "~"); len(parts) == 4 {
		p.IPAddresses, p.Name = []string{parts[1]}, parts[2]
		p.Namespace, _, _ = strings.Cut(parts[3], ".")
	}
	return p
}

// The causes of an error that names another server.
const (
	causeServer metav1.CauseType = "ConnectedToServer"
	causeAPI    metav1.CauseType = "ServerAPI"
)

// elsewhereError says which server a proxy is connected to, and what to do.
func elsewhereError(at progress.Place) error {
	machine, _, _ := strings.Cut(at.Server, ":")
	message := fmt.Sprintf("proxy %s is connected to another server, %s: ", at.Node, at.Server)
	if at.API == "" {
		message += "ask that server"
	} else {
		message += fmt.Sprintf("on machine %s, run the command with --server %s", machine, at.API)
	}
	misdirected := refusal.New(http.StatusMisdirectedRequest, metav1.StatusReasonBadRequest, message)
	misdirected.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: causeServer, Message: at.Server}, {Type: causeAPI, Message: at.API},
	}}
	return misdirected
}

// ConnectedElsewhere reports whether an error of the API names another server that has the
// proxy. It returns the query for that server, and the URL of the server's API. That URL may be
// a loopback address of the server's machine.
func ConnectedElsewhere(err error, query url.Values) (there url.Values, server string, ok bool) {
	var status interface{ Status() metav1.Status }
	if !errors.As(err, &status) || status.Status().Code != http.StatusMisdirectedRequest || status.Status().Details == nil {
		return nil, "", false
	}
	causes := map[metav1.CauseType]string{}
	for _, c := range status.Status().Details.Causes {
		causes[c.Type] = c.Message
	}
	if causes[causeServer] == "" || causes[causeAPI] == "" {
		return nil, "", false
	}
	there = maps.Clone(query)
	there.Set("server", causes[causeServer])
	return there, causes[causeAPI], true
}
