package openapi

import (
	"net/http"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/schema"
)

const metaPrefix = "io.k8s.apimachinery.pkg.apis.meta.v1."

const (
	asJSON = "application/json"
	asYAML = "application/yaml"
)

// resource describes the paths of a kind in one version.
type resource struct {
	kind    *schema.Schema
	version string
	// status says that clients can set the status by itself.
	status bool
}

// root returns the path of an API version.
func root(k *schema.Schema, version string) string {
	if k.Group == "" {
		return "/api/" + version
	}
	return path.Join("/apis", k.Group, version)
}

// paths adds the paths of the kind.
func (r resource) paths(to map[string]spec.PathItem) {
	all := path.Join(root(r.kind, r.version), r.kind.Plural)
	within := all
	if !r.kind.ClusterScoped {
		within = path.Join(root(r.kind, r.version), "namespaces/{namespace}", r.kind.Plural)
		to[all] = item(spec.PathItemProps{Get: r.list("ForAllNamespaces")})
	}
	to[within] = item(r.placed(spec.PathItemProps{
		Get:  r.list(""),
		Post: r.write("post", "create", "Create an object.", http.StatusCreated),
	}, false))
	one := within + "/{name}"
	update := r.write("put", "replace", "Replace an object.", http.StatusOK)
	to[one] = item(r.placed(spec.PathItemProps{Get: r.read("", "Read an object."), Put: update, Patch: r.patch(), Delete: r.remove()}, true))
	if r.status {
		to[one+"/status"] = item(r.placed(spec.PathItemProps{
			Get: r.read("Status", "Read an object with its status."),
			Put: r.named("Status", r.write("put", "replace", "Set the status of an object.", http.StatusOK)),
		}, true))
	}
}

func item(props spec.PathItemProps) spec.PathItem { return spec.PathItem{PathItemProps: props} }

// placed adds the parameters that stand in the path.
func (r resource) placed(props spec.PathItemProps, named bool) spec.PathItemProps {
	if named {
		props.Parameters = append(props.Parameters, inPath("name", "The name of the object."))
	}
	if !r.kind.ClusterScoped {
		props.Parameters = append(props.Parameters, inPath("namespace", "The namespace of the object."))
	}
	return props
}

func (r resource) definition(suffix string) *spec.Schema {
	return spec.RefSchema(definitionPrefix + kindName(r.kind, r.version) + suffix)
}

// operation returns what all operations have.
func (r resource) operation(action, verb, suffix, text string) *spec.Operation {
	return &spec.Operation{
		OperationProps: spec.OperationProps{
			ID: verb + r.tag(true) + r.scope() + r.kind.Kind + suffix, Description: text, Tags: []string{r.tag(false)},
			Produces: []string{asJSON}, Schemes: []string{"https", "http"},
		},
		VendorExtensible: spec.VendorExtensible{
			Extensions: spec.Extensions{kindExtension: kindMeta(r.kind, r.version, ""), "x-kubernetes-action": action},
		},
	}
}

// scope is Namespaced for a kind in namespaces, as in the ids of Kubernetes' operations.
func (r resource) scope() string {
	if r.kind.ClusterScoped {
		return ""
	}
	return "Namespaced"
}

// tag names the API version: networkingIstioIo_v1, or in an id NetworkingIstioIoV1.
func (r resource) tag(inID bool) string {
	parts := strings.Split(r.kind.Group, ".")
	if r.kind.Group == "" {
		parts = []string{"core"}
	}
	if inID {
		parts = append(parts, r.version)
	}
	var tag strings.Builder
	for i, part := range parts {
		if i > 0 || inID {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		tag.WriteString(part)
	}
	if !inID {
		tag.WriteString("_" + r.version)
	}
	return tag.String()
}

func (r resource) named(suffix string, o *spec.Operation) *spec.Operation {
	o.ID += suffix
	return o
}

func (r resource) read(suffix, text string) *spec.Operation {
	o := r.operation("get", "read", suffix, text)
	o.Parameters = []spec.Parameter{
		inQuery("resourceVersion", "string", "Answers with this version of the mesh or a later one."),
		inQuery("consistent", "boolean", "Answers with every write that was acknowledged before the request."),
	}
	return answering(o, http.StatusOK, r.definition(""))
}

func (r resource) list(suffix string) *spec.Operation {
	o := r.operation("list", "list", suffix, "List objects, or watch them.")
	o.Parameters = []spec.Parameter{
		inQuery("labelSelector", "string", "Selects objects by labels."),
		inQuery("fieldSelector", "string", "Selects objects by metadata.name and metadata.namespace."),
		inQuery("resourceVersion", "string", "Answers with this version of the mesh or a later one, or watches from there."),
		inQuery("resourceVersionMatch", "string", "Says how resourceVersion is meant: Exact or NotOlderThan."),
		inQuery("consistent", "boolean", "Answers with every write that was acknowledged before the request."),
		inQuery("watch", "boolean", "Sends the changes as they come."),
		inQuery("allowWatchBookmarks", "boolean", "Has a watch tell now and then how far it is."),
		inQuery("warnings", "boolean", "Has the bookmarks of a watch say, in the annotation portolan.io/warnings, what a list would warn of; one comes whenever that changes."),
		inQuery("sendInitialEvents", "boolean", "Begins a watch with the objects that there are."),
		inQuery("timeoutSeconds", "integer", "Ends a watch after this time."),
	}
	return answering(o, http.StatusOK, r.definition("List"))
}

func (r resource) write(action, verb, text string, status int) *spec.Operation {
	o := r.operation(action, verb, "", text)
	o.Consumes = []string{asJSON, asYAML}
	o.Parameters = append(ofWrites(), body(r.definition("")))
	return answering(o, status, r.definition(""))
}

func (r resource) patch() *spec.Operation {
	o := r.operation("patch", "patch", "", "Change a part of an object, or apply a part of it.")
	o.Consumes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	o.Parameters = append(ofWrites(),
		inQuery("force", "boolean", "Takes over fields that others have applied. It is for applies alone."),
		body(spec.RefSchema(definitionPrefix+metaPrefix+"Patch")))
	answering(o, http.StatusCreated, r.definition(""))
	return answering(o, http.StatusOK, r.definition(""))
}

func (r resource) remove() *spec.Operation {
	o := r.operation("delete", "delete", "", "Delete an object.")
	o.Consumes = []string{asJSON, asYAML}
	options := body(spec.RefSchema(definitionPrefix + metaPrefix + "DeleteOptions"))
	options.Required = false
	o.Parameters = []spec.Parameter{dryRun(), options}
	return answering(o, http.StatusOK, spec.RefSchema(definitionPrefix+metaPrefix+"Status"))
}

// answering adds an answer to an operation, and what it answers to errors.
func answering(o *spec.Operation, status int, value *spec.Schema) *spec.Operation {
	if o.Responses == nil {
		o.Responses = &spec.Responses{ResponsesProps: spec.ResponsesProps{
			Default:             response("An error.", spec.RefSchema(definitionPrefix+metaPrefix+"Status")),
			StatusCodeResponses: map[int]spec.Response{},
		}}
	}
	o.Responses.StatusCodeResponses[status] = *response(http.StatusText(status), value)
	return o
}

func response(text string, value *spec.Schema) *spec.Response {
	return &spec.Response{ResponseProps: spec.ResponseProps{Description: text, Schema: value}}
}

// ofWrites returns the parameters of creates, replaces and patches. Clients look for them
// before they send them.
func ofWrites() []spec.Parameter {
	return []spec.Parameter{
		dryRun(),
		inQuery("fieldManager", "string", "The name of the tool that writes."),
		inQuery("fieldValidation", "string", "What becomes of unknown fields: Ignore, Warn or Strict. The server refuses them, whatever is asked."),
	}
}

func dryRun() spec.Parameter {
	return inQuery("dryRun", "string", "With "+metav1.DryRunAll+" the request is checked and answered like any other, and nothing is written.")
}

func inQuery(name, of, text string) spec.Parameter { return parameter("query", name, of, text) }

func inPath(name, text string) spec.Parameter {
	p := parameter("path", name, "string", text)
	p.Required = true
	return p
}

func parameter(in, name, of, text string) spec.Parameter {
	return spec.Parameter{
		SimpleSchema: spec.SimpleSchema{Type: of},
		ParamProps:   spec.ParamProps{In: in, Name: name, Description: text},
	}
}

func body(of *spec.Schema) spec.Parameter {
	return spec.Parameter{ParamProps: spec.ParamProps{In: "body", Name: "body", Required: true, Schema: of}}
}
