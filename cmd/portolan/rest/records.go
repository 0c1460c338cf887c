package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// History reads the past. Any storage.Historian is one.
type History interface {
	Records(ctx context.Context, query storage.Query) ([]storage.Record, error)
	At(ctx context.Context, version string, selection storage.Selection) ([]*config.Config, error)
}

func (s *Server) records(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, func(c *call) error {
		c.kind, c.verb = record.Kind, "list"
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			c.w.Header().Set("Allow", "GET")
			return methodNotAllowed(c)
		}
		if err := s.authenticate(c); err != nil {
			return err
		}
		asked, err := s.parseRecordQuery(c.query)
		if err != nil {
			return err
		}
		err = s.authorize(c, access.Request{
			Verb: c.verb, Path: r.URL.Path, Group: batch.Group, Version: batch.Version, Resource: record.Resource,
			Namespace: asked.Selection.Namespace, Name: asked.Selection.Name,
		})
		if err != nil {
			return err
		}
		return s.recorded(c, asked)
	})
}

func (s *Server) recorded(c *call, asked recordQuery) error {
	if s.history == nil {
		return refusal.NotFound("this server keeps no history")
	}
	limit := asked.Limit
	asked.Limit++ // one more shows whether there are more
	found, err := s.history.Records(c.r.Context(), asked.Query)
	if err != nil {
		return err
	}
	answer := record.NewList([]record.Record{})
	if len(found) > limit {
		answer.Metadata.Continue = found[limit].Revision
		found = found[:limit]
	}
	for _, r := range found {
		shown, err := showRecord(r, asked.objects)
		if err != nil {
			return err
		}
		answer.Items = append(answer.Items, shown)
	}
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

func showRecord(r storage.Record, objects bool) (record.Record, error) {
	out := record.Record{
		Revision: r.Revision, Time: r.Time,
		User: r.Origin.User, Address: r.Origin.Address, Tool: r.Origin.Tool, Message: r.Origin.Message,
		Changes: make([]record.Change, len(r.Changes)),
	}
	for i, change := range r.Changes {
		shown := record.Change{
			Group: change.Key.Kind.Group, Kind: change.Key.Kind.Kind,
			Namespace: change.Key.Namespace, Name: change.Key.Name, Outcome: string(change.Outcome),
		}
		var err error
		if objects {
			if shown.Before, err = pastJSON(change.Before); err != nil {
				return out, err
			}
			if shown.After, err = pastJSON(change.After); err != nil {
				return out, err
			}
		}
		out.Changes[i] = shown
	}
	return out, nil
}

// pastJSON returns only metadata for an object that is no longer known.
func pastJSON(object *config.Config) (json.RawMessage, error) {
	switch {
	case object == nil:
		return nil, nil
	case object.Spec != nil:
		return document(object, "")
	}
	unknown := metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: object.Kind, APIVersion: strings.TrimSuffix(object.APIVersion(), "/")},
	}
	unknown.Namespace, unknown.Name, unknown.ResourceVersion = object.Namespace, object.Name, object.ResourceVersion
	return json.Marshal(unknown)
}

// recordQuery is a client's query for records.
type recordQuery struct {
	storage.Query
	objects bool // include the objects before and after
}

// parseRecordQuery reads the parameters of a record.Query, and reports the
// faults of all of them.
func (s *Server) parseRecordQuery(query url.Values) (recordQuery, error) {
	p := &recordParser{query: query, schemas: s.schemas}
	p.refuseUnknown("group", "kind", "namespace", "name", "after", "until", "limit", "objects")
	out := recordQuery{objects: true}
	out.Selection = p.selection()
	after, until := p.number("after", 1<<62), p.number("until", 1<<62)
	if after > 0 {
		out.After = strconv.FormatInt(after, 10)
	}
	if until > 0 {
		out.Until = strconv.FormatInt(until, 10)
	}
	if after > 0 && until > 0 && until <= after {
		p.cannotRead("until", fmt.Sprintf("%d is not above after, %d", until, after))
	}
	if out.Limit = int(p.number("limit", record.MaxLimit)); out.Limit == 0 {
		out.Limit = record.DefaultLimit
	}
	switch query.Get("objects") {
	case "", "true":
	case "false":
		out.objects = false
	default:
		p.cannotRead("objects", fmt.Sprintf("%q: use true or false", query.Get("objects")))
	}
	return out, p.error("records cannot be selected", metav1.StatusDetails{Group: batch.Group, Kind: record.Kind})
}

// recordParser collects the faults of parameters.
type recordParser struct {
	faults
	query   url.Values
	schemas schema.Set
}

// refuseUnknown reports parameters that are not among the given names.
func (p *recordParser) refuseUnknown(names ...string) {
	var others []string
	for name, values := range p.query {
		if !slices.Contains(names, name) {
			others = append(others, name)
		} else if len(values) > 1 {
			p.cannotRead(name, "is given twice")
		}
	}
	slices.Sort(others)
	for _, name := range others {
		p.cannotRead(name, "is no parameter of records: use "+strings.Join(names, ", "))
	}
}

// number reads a whole number from 1 to most; 0 if it is absent.
func (p *recordParser) number(name string, most int64) int64 {
	text := p.query.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		message := fmt.Sprintf("%q is not a number from 1 on", text)
		if err == nil && n > most {
			message = fmt.Sprintf("%d is more than %d", n, most)
		}
		p.cannotRead(name, message)
		return 0
	}
	return n
}

// selection reads which objects are selected.
func (p *recordParser) selection() storage.Selection {
	group, kind := p.query.Get("group"), p.query.Get("kind")
	selection := storage.Selection{Namespace: p.query.Get("namespace"), Name: p.query.Get("name")}
	if kind == "" {
		if group != "" {
			p.cannotRead("kind", "is missing, and group needs one: say which kind of "+group)
		}
		if selection.Name != "" {
			p.cannotRead("kind", "is missing, and name needs one: say what "+selection.Name+" is")
		}
		return selection
	}
	found := p.kind(group, kind)
	switch {
	case found == nil:
	case found.ClusterScoped && selection.Namespace != "":
		p.cannotRead("namespace", fmt.Sprintf("is %q, and objects of kind %s are in none", selection.Namespace, found.Kind))
	case !found.ClusterScoped && selection.Namespace == "" && selection.Name != "":
		p.cannotRead("namespace", fmt.Sprintf("is missing: %s %s is in one", found.Singular, selection.Name))
	}
	if found != nil {
		selection.Kind = found.GroupVersionKind
	}
	return selection
}

// kind finds a kind by its name, nil unless exactly one matches.
func (p *recordParser) kind(group, name string) *schema.Schema {
	var found []*schema.Schema
	for _, kind := range p.schemas.All() {
		if kind.Kind == name && (group == "" || kind.Group == group) {
			found = append(found, kind)
		}
	}
	if i := slices.IndexFunc(found, func(k *schema.Schema) bool { return k.Group == group }); i >= 0 {
		return found[i] // of the core group, if no group is named
	}
	switch {
	case len(found) == 1:
		return found[0]
	case len(found) > 1:
		p.cannotRead("group", fmt.Sprintf("is missing: %s and %s have a kind %s", found[0].Group, found[1].Group, name))
	case group != "":
		p.cannotRead("kind", fmt.Sprintf("%q of group %s is unknown to this server", name, group))
	default:
		p.cannotRead("kind", fmt.Sprintf("%q is unknown to this server: give its name as in VirtualService", name))
	}
	return nil
}
