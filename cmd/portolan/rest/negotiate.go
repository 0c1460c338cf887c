package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/table"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/side"
)

// The kinds that objects and lists can be turned into, of the group meta.k8s.io.
const (
	asTable       = "Table"
	asPartial     = "PartialObjectMetadata"
	asPartialList = "PartialObjectMetadataList"
)

// accepted is what a client accepts, of what is offered.
type accepted struct {
	media string
	// as is the kind that the answer is to be turned into; empty for none.
	as     runtimeschema.GroupVersionKind
	pretty bool
}

// negotiate returns the first form that a client accepts, in the order of its preference. A
// client that accepts another kind is offered those that turns allows.
func negotiate(r *http.Request, offers []string, turns func(media string, as runtimeschema.GroupVersionKind) bool) (accepted, error) {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		header = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		for _, media := range offers {
			as := runtimeschema.GroupVersionKind{Group: clause.Params["g"], Version: clause.Params["v"], Kind: clause.Params["as"]}
			if as.Kind == "" {
				as = runtimeschema.GroupVersionKind{}
			}
			if covers(clause, media) && (as.Empty() || turns(media, as)) {
				return accepted{media: media, as: as, pretty: clause.Params["pretty"] == "1"}, nil
			}
		}
	}
	return accepted{}, notAcceptable("only the following media types are accepted: " + strings.Join(offers, ", "))
}

// covers says whether a clause, possibly with wildcards, includes a media type.
func covers(clause goautoneg.Accept, media string) bool {
	kind, subtype, _ := strings.Cut(media, "/")
	return (clause.Type == kind || clause.Type == "*" && clause.SubType == "*") && (clause.SubType == subtype || clause.SubType == "*")
}

func notAcceptable(message string) error {
	return refusal.New(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

// negotiate finds the form of the answer that the client accepts. It refuses a client that
// accepts none before anything is done for it.
func (c *call) negotiate() error {
	offers := []string{runtime.ContentTypeJSON}
	if c.verb != "watch" {
		offers = append(offers, runtime.ContentTypeYAML)
	}
	got, err := negotiate(c.r, offers, func(_ string, as runtimeschema.GroupVersionKind) bool {
		return as.Group == metav1.GroupName && slices.Contains([]string{"v1", "v1beta1"}, as.Version) &&
			slices.Contains([]string{asTable, asPartial, asPartialList}, as.Kind)
	})
	if err != nil && c.verb != "watch" && side.Types.Recognizes(c.gvk()) {
		// Protobuf is for clients that accept nothing else: the others share the text in JSON.
		offers = append(offers, runtime.ContentTypeProtobuf)
		got, err = negotiate(c.r, offers, func(string, runtimeschema.GroupVersionKind) bool { return false })
	}
	if err != nil {
		return err
	}
	c.form = form{shape: shape{media: got.media, as: got.as.Kind, version: got.as.Version}}
	pretty, err := isPretty(c, got)
	if err != nil {
		return err
	}
	c.form.pretty = pretty && c.verb != "watch" && got.media == runtime.ContentTypeJSON
	switch list := c.verb == "list"; {
	case got.as.Kind == asPartial && list:
		return notAcceptable(fmt.Sprintf("you requested %s, but the requested object is a list (%s)", asPartial, c.schema.Kind+"List"))
	case got.as.Kind == asPartialList && !list:
		return notAcceptable(fmt.Sprintf("you requested %s, but the requested object is not a list (%s)", asPartialList, c.schema.Kind))
	case got.as.Kind != asTable:
		return nil
	}
	c.form.table, c.form.defined = table.Of(c.schema.GroupVersionKind), true
	c.form.include = metav1.IncludeObjectPolicy(c.query.Get("includeObject"))
	switch c.form.include {
	case "":
		c.form.include = metav1.IncludeMetadata
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return refusal.BadRequest(fmt.Sprintf("includeObject %q: use %s, %s or %s", c.form.include, metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject))
	}
	return nil
}

// isPretty says whether the answer is to be indented: by the parameter of the URL, else of the
// Accept header.
func isPretty(c *call, got accepted) (bool, error) {
	if !c.query.Has("pretty") {
		return got.pretty, nil
	}
	text := c.query.Get("pretty")
	if text == "" {
		return true, nil
	}
	pretty, err := strconv.ParseBool(text)
	if err != nil {
		return false, refusal.BadRequest(fmt.Sprintf("pretty %q: use true or false", text))
	}
	return pretty, nil
}
