// Package finding has the JSON shapes of what is odd about stored objects beside each
// other.
//
//	GET  /apis/portolan.io/v1/findings?namespace=shop
//	POST /apis/portolan.io/v1/findings
//
// GET answers with what is odd now. The body of POST is a batch (package batch); its
// answer is what would be odd after the batch, and nothing is written. Findings are in
// the order of their objects, the worst of an object first.
package finding

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
)

// The path of the findings, and the kind of an answer.
const (
	Path     = "/apis/" + batch.APIVersion + "/findings"
	ListKind = "FindingList"
)

// List is an answer.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Revision of the store that the findings are as of; of a POST the one that the
	// batch was applied to.
	Revision int64     `json:"revision"`
	Items    []Finding `json:"items"`
}

// Finding is one thing that is odd about an object.
type Finding struct {
	// Code is stable: PTL and four digits. Istio are the codes of Istio's analysis of
	// equal meaning, empty for none.
	Code  string `json:"code"`
	Istio string `json:"istio,omitempty"`
	// Severity is error, warning or info.
	Severity string `json:"severity"`
	Object   Object `json:"object"`
	// Field is the path of a field of the object, empty for the whole object.
	Field string `json:"field,omitempty"`
	// Message says what is the case and what it causes, Remedy what to do.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Other is the other object concerned, nil for none.
	Other *Object `json:"other,omitempty"`
}

// Severities are the severities of findings, the worst first.
var Severities = []string{"error", "warning", "info"}

// Codes returns the code and Istio's codes of equal meaning.
func (f Finding) Codes() string {
	if f.Istio == "" {
		return f.Code
	}
	return f.Code + ", " + f.Istio
}

// Text says in one line what a finding is about, without its codes.
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
