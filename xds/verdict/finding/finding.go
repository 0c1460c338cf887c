// Package finding has the JSON shapes of findings: oddities of stored objects in
// combination with others.
//
//	GET  /apis/portolan.io/v1/findings?namespace=shop
//	POST /apis/portolan.io/v1/findings
//
// GET answers with the present findings. The body of POST is a batch (package batch);
// its answer has the findings after the batch, and nothing is written. Findings are in
// the order of their objects, the worst of an object first. Those about endpoints that a
// registry has without objects follow: they are on a Service of portolan.io/v1, by its host.
// Sources that are not read in full come last.
package finding

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The path of the findings, and the kind of an answer.
const (
	Path     = "/apis/portolan.io/v1/findings"
	ListKind = "FindingList"
)

// SourceKind is the kind of portolan.io/v1 by which findings name a source of configuration, of
// services or of secrets. It has no namespace, and concerns all.
const SourceKind = "Source"

// List is the answer.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the revision of the store that the findings are as of; for a POST, the
	// revision that the batch was applied to.
	Revision int64     `json:"revision"`
	Items    []Finding `json:"items"`
}

// Finding is one oddity of an object.
type Finding struct {
	// Code is stable: PTL and four digits. Istio are the equivalent codes of Istio's
	// analysis, empty for none.
	Code  string `json:"code"`
	Istio string `json:"istio,omitempty"`
	// Severity is error, warning or info.
	Severity string `json:"severity"`
	Object   Object `json:"object"`
	// Field is the path of a field of the object, empty for the whole object.
	Field string `json:"field,omitempty"`
	// Message says what is odd and what it causes, Remedy what to do.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Other is the other object involved, nil for none.
	Other *Object `json:"other,omitempty"`
}

// Severities are the severities of findings, the worst first.
var Severities = []string{"error", "warning", "info"}

// Codes returns the code and the equivalent codes of Istio.
func (f Finding) Codes() string {
	if f.Istio == "" {
		return f.Code
	}
	return f.Code + ", " + f.Istio
}

// Text returns a finding in one line, without its codes.
func (f Finding) Text() string {
	out := strings.TrimPrefix(f.Field+" "+f.Message, " ")
	if f.Remedy != "" {
		out += ": " + f.Remedy
	}
	return out
}

// Object names an object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Advice is one warning of an operation.
type Advice struct {
	Text string
	// Severity is one of Severities.
	Severity string
	// Dangling says that the warning is about another object, which refers to the one that
	// the operation deletes.
	Dangling bool
}
