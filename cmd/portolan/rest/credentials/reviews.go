package credentials

import (
	"encoding/json"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/access"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

const (
	// SelfPath answers a GET with the Self of the caller.
	SelfPath = "/apis/" + spec.Group + "/v1/selfaccess"
	// AccessReviewPath takes a POST of a SelfSubjectAccessReview of Kubernetes.
	AccessReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

	rulesReviewPath   = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	subjectReviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// Self says who the server takes the caller for, and what the caller may do.
type Self struct {
	metav1.TypeMeta `json:",inline"`
	User            string   `json:"user"`
	Groups          []string `json:"groups,omitempty"`
	// Unproved is true if the identity is a guess, because the request came from the server's
	// own machine without a credential.
	Unproved bool        `json:"unproved,omitempty"`
	Until    time.Time   `json:"until,omitzero"`
	Grants   []SelfGrant `json:"grants"`
	// Root is the root namespace of the mesh, where the users are.
	Root string `json:"rootNamespace"`
}

// SelfGrant is a rule that the caller has, and where it comes from.
type SelfGrant struct {
	spec.Rule
	// Namespace is where the rule holds, empty for the whole mesh.
	Namespace string `json:"namespace,omitempty"`
	Role      string `json:"role,omitempty"`
	Binding   string `json:"binding,omitempty"`
}

// AccessReview is a SelfSubjectAccessReview of Kubernetes.
type AccessReview struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        json.RawMessage    `json:"metadata,omitempty"`
	Spec            AccessReviewSpec   `json:"spec"`
	Status          AccessReviewStatus `json:"status"`
}

// NewReview returns a review that asks about objects.
func NewReview(of *ResourceAttributes) AccessReview {
	return AccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec:     AccessReviewSpec{Resource: of},
	}
}

// AccessReviewSpec is the question; exactly one of its fields is set.
type AccessReviewSpec struct {
	Resource *ResourceAttributes `json:"resourceAttributes,omitempty"`
	Path     *PathAttributes     `json:"nonResourceAttributes,omitempty"`
}

// ResourceAttributes describes an action on objects.
type ResourceAttributes struct {
	Namespace     string          `json:"namespace,omitempty"`
	Verb          string          `json:"verb,omitempty"`
	Group         string          `json:"group,omitempty"`
	Version       string          `json:"version,omitempty"`
	Resource      string          `json:"resource,omitempty"`
	Subresource   string          `json:"subresource,omitempty"`
	Name          string          `json:"name,omitempty"`
	FieldSelector json.RawMessage `json:"fieldSelector,omitempty"`
	LabelSelector json.RawMessage `json:"labelSelector,omitempty"`
}

// PathAttributes describes an action on a path of the API.
type PathAttributes struct {
	Path string `json:"path,omitempty"`
	Verb string `json:"verb,omitempty"`
}

// AccessReviewStatus is the server's answer.
type AccessReviewStatus struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

func (p *paths) reviews(api *rest.Server) {
	api.Endpoint("GET "+SelfPath, p.self)
	api.Endpoint("POST "+AccessReviewPath, p.accessReview)
	api.Endpoint("POST "+rulesReviewPath, p.rulesReview)
	api.Endpoint("POST "+subjectReviewPath, p.subjectReview)
}

func (p *paths) self(w http.ResponseWriter, r *http.Request) error {
	who := rest.IdentityOf(r.Context())
	out := Self{
		TypeMeta: metav1.TypeMeta{Kind: "SelfAccess", APIVersion: spec.Group + "/v1"},
		User:     who.User, Groups: who.Groups, Unproved: who.Unproved, Until: who.Until, Grants: []SelfGrant{}, Root: p.keeper.Root(),
	}
	for _, g := range p.keeper.GrantsOf(who) {
		out.Grants = append(out.Grants, SelfGrant{Rule: g.Rule, Namespace: g.Scope, Role: g.Role, Binding: g.Binding})
	}
	rest.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (p *paths) accessReview(w http.ResponseWriter, r *http.Request) error {
	var review AccessReview
	var message authorizationv1.SelfSubjectAccessReview
	if err := rest.ReadReview(w, r, &message, &review); err != nil {
		return err
	}
	review.TypeMeta = NewReview(nil).TypeMeta // a protobuf message carries the type outside the review
	var asked access.Request
	switch of := review.Spec; {
	case of.Resource != nil && of.Path == nil:
		asked = access.Request{
			Verb: of.Resource.Verb, Group: of.Resource.Group, Version: of.Resource.Version, Resource: p.keeper.Plural(of.Resource.Resource),
			Namespace: of.Resource.Namespace, Name: of.Resource.Name, Subresource: of.Resource.Subresource,
		}
	case of.Path != nil && of.Resource == nil:
		asked = access.Request{Verb: of.Path.Verb, Path: of.Path.Path}
	default:
		return refusal.BadRequest("spec: name either resourceAttributes or nonResourceAttributes")
	}
	if err := p.keeper.Authorize(r.Context(), rest.IdentityOf(r.Context()), asked); err != nil {
		review.Status = AccessReviewStatus{Reason: err.Error()}
	} else {
		review.Status = AccessReviewStatus{Allowed: true}
	}
	rest.WriteJSON(w, http.StatusCreated, review)
	return nil
}

// resourceRule is a rule in the form of Kubernetes.
type resourceRule struct {
	Verbs         []string `json:"verbs"`
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
}

func (p *paths) rulesReview(w http.ResponseWriter, r *http.Request) error {
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        json.RawMessage `json:"metadata,omitempty"`
		Spec            struct {
			Namespace string `json:"namespace,omitempty"`
		} `json:"spec"`
		Status struct {
			ResourceRules    []resourceRule `json:"resourceRules"`
			NonResourceRules []resourceRule `json:"nonResourceRules"`
			Incomplete       bool           `json:"incomplete"`
			EvaluationError  string         `json:"evaluationError,omitempty"`
		} `json:"status"`
	}
	var message authorizationv1.SelfSubjectRulesReview
	if err := rest.ReadReview(w, r, &message, &review); err != nil {
		return err
	}
	review.TypeMeta = metav1.TypeMeta{Kind: "SelfSubjectRulesReview", APIVersion: "authorization.k8s.io/v1"}
	review.Status.ResourceRules, review.Status.NonResourceRules = []resourceRule{}, []resourceRule{}
	for _, g := range p.keeper.GrantsOf(rest.IdentityOf(r.Context())) {
		if !g.HoldsIn(review.Spec.Namespace) {
			continue
		}
		rule := resourceRule{Verbs: g.Verbs, APIGroups: []string{spec.All}, Resources: g.Kinds, ResourceNames: g.Names}
		review.Status.ResourceRules = append(review.Status.ResourceRules, rule)
	}
	rest.WriteJSON(w, http.StatusCreated, review)
	return nil
}

func (p *paths) subjectReview(w http.ResponseWriter, r *http.Request) error {
	who := rest.IdentityOf(r.Context())
	type userInfo struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups,omitempty"`
	}
	type status struct {
		UserInfo userInfo `json:"userInfo"`
	}
	rest.WriteJSON(w, http.StatusCreated, struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]any `json:"metadata"`
		Status          status         `json:"status"`
	}{
		metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"}, map[string]any{"creationTimestamp": time.Now().UTC().Format(time.RFC3339)},
		status{userInfo{who.User, who.Groups}},
	})
	return nil
}
