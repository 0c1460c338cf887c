package node

import (
	"time"

	"google.golang.org/protobuf/types/known/structpb"
)

// Facts are what an agent says of its machine. They are the node metadata of requests that ask for
// nothing. The zero value of a field says that nothing is known.
type Facts struct {
	// Agent is the version of the agent, which runs since AgentSince. Envoy is that of the Envoy
	// that it runs, since EnvoySince.
	Agent      string    `json:"agent,omitempty"`
	AgentSince time.Time `json:"agentSince,omitzero"`
	Envoy      string    `json:"envoy,omitempty"`
	EnvoySince time.Time `json:"envoySince,omitzero"`
	// CertificateEnds is when the certificate of the machine ends.
	CertificateEnds time.Time `json:"certificateEnds,omitzero"`
	// Capture is the state of the rules of capture, such as "in force", or "none".
	Capture string `json:"capture,omitempty"`
	// Patches is what becomes of what EnvoyFilters say of the bootstrap; empty if they say nothing.
	Patches string `json:"patches,omitempty"`
	// Drained is why the machine has drained itself.
	Drained string `json:"drained,omitempty"`
}

// maxFact bounds a text of Facts.
const maxFact = 256

// texts and times are the fields by their names in node metadata.
func (f *Facts) texts() map[string]*string {
	return map[string]*string{"AGENT_VERSION": &f.Agent, "ENVOY_VERSION": &f.Envoy, "CAPTURE": &f.Capture, "PATCHES": &f.Patches, "DRAINED": &f.Drained}
}

func (f *Facts) times() map[string]*time.Time {
	return map[string]*time.Time{"AGENT_SINCE": &f.AgentSince, "ENVOY_SINCE": &f.EnvoySince, "CERTIFICATE_ENDS": &f.CertificateEnds}
}

// Metadata returns the node metadata of the facts, with times in whole seconds.
func (f Facts) Metadata() *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for name, text := range f.texts() {
		if *text != "" {
			out.Fields[name] = structpb.NewStringValue((*text)[:min(len(*text), maxFact)])
		}
	}
	for name, at := range f.times() {
		if !at.IsZero() {
			out.Fields[name] = structpb.NewStringValue(at.UTC().Format(time.RFC3339))
		}
	}
	return out
}

// FactsOf reads node metadata. It leaves out fields that it does not know, texts of more than 256
// bytes, and times that are none.
func FactsOf(metadata *structpb.Struct) Facts {
	var f Facts
	for name, text := range f.texts() {
		if value := metadata.GetFields()[name].GetStringValue(); len(value) <= maxFact {
			*text = value
		}
	}
	for name, at := range f.times() {
		if value, err := time.Parse(time.RFC3339, metadata.GetFields()[name].GetStringValue()); err == nil {
			*at = value.UTC()
		}
	}
	return f
}
