package node

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"
)

// State says what has become of the registration that a stream of a proxy asks for.
type State string

// The states.
const (
	Waiting    State = "waiting" // for a group, for listeners, or for the store
	Registered State = "registered"
	Refused    State = "refused"
	Replaced   State = "replaced" // by a newer stream of the proxy
	Departed   State = "departed" // the machine has said that it leaves
	Written    State = "written"  // somebody has written the entry: no registration keeps it
)

// Standing is what a server says to a machine of its entry. The zero value says that it asks for no
// registration, and that nobody has written an entry for it.
type Standing struct {
	State State `json:"state"`
	// Entry is the WorkloadEntry of the machine, as workloadentry/namespace/name.
	Entry string `json:"entry"`
	// Reason says why the state is what it is. Of a registered machine it names what its entry does
	// not have; it is empty if that has all. Of a written entry it names the others of the machine.
	Reason string `json:"reason,omitempty"`
	// Drained is why people have drained the machine; empty if they have not.
	Drained string `json:"drained,omitempty"`
}

// EndDrain returns the command by which those who operate the mesh end the drain of the entry.
func (s Standing) EndDrain() string {
	parts := strings.Split(s.Entry, "/")
	if len(parts) != 3 {
		return "portolan machine drain --end"
	}
	return "portolan machine drain " + parts[2] + " -n " + parts[1] + " --end"
}

// maxStanding bounds a text of a Standing.
const maxStanding = 2 << 10

// texts are the fields by their names in a message.
func (s *Standing) texts() map[string]*string {
	return map[string]*string{"state": (*string)(&s.State), "entry": &s.Entry, "reason": &s.Reason, "drained": &s.Drained}
}

// Message returns the message that says so. It cuts long texts.
func (s Standing) Message() *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for name, text := range s.texts() {
		if *text == "" {
			continue
		}
		cut := min(len(*text), maxStanding)
		for cut > 0 && cut < len(*text) && !utf8.RuneStart((*text)[cut]) {
			cut--
		}
		out.Fields[name] = structpb.NewStringValue((*text)[:cut])
	}
	return out
}

// StandingOf reads a message. It leaves out fields that it does not know.
func StandingOf(m *structpb.Struct) Standing {
	var s Standing
	for name, text := range s.texts() {
		*text = m.GetFields()[name].GetStringValue()
	}
	return s
}
