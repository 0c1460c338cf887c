package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Clients of Kubernetes send objects of its own kinds as protobuf messages, and take JSON for an
// answer. So a message becomes JSON before anything reads it.

// message is a protobuf message of Kubernetes.
type message interface{ Unmarshal([]byte) error }

// unwrap reads the envelope of a message.
func unwrap(body []byte) (*runtime.Unknown, error) {
	wrapped, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !ok {
		return nil, refusal.BadRequest("the body cannot be read: it is no message of Kubernetes")
	}
	envelope := &runtime.Unknown{}
	if err := envelope.Unmarshal(wrapped); err != nil {
		return nil, refusal.BadRequest("the body cannot be read: " + err.Error())
	}
	return envelope, nil
}

// messageOf returns an empty message of a type, nil if objects of it come as JSON only.
func messageOf(of runtime.TypeMeta) message {
	if of.Kind == "DeleteOptions" {
		return &metav1.DeleteOptions{}
	}
	for _, kind := range []config.GroupVersionKind{
		{Version: of.APIVersion, Kind: of.Kind},
		{Group: of.GroupVersionKind().Group, Version: of.GroupVersionKind().Version, Kind: of.Kind},
	} {
		if like := strategic[kind]; like != nil {
			out, _ := reflect.New(reflect.TypeOf(like)).Interface().(message)
			return out
		}
	}
	return nil
}

// fromMessage returns the object of a message as JSON.
func fromMessage(body []byte) ([]byte, error) {
	envelope, err := unwrap(body)
	if err != nil {
		return nil, err
	}
	read := messageOf(envelope.TypeMeta)
	if read == nil {
		return nil, refusal.BadRequest(fmt.Sprintf("the body is a message with a %s of %s, which this server reads as JSON only", envelope.Kind, envelope.APIVersion))
	}
	if err := read.Unmarshal(envelope.Raw); err != nil {
		return nil, refusal.BadRequest("the body cannot be read: " + err.Error())
	}
	members, err := json.Marshal(read)
	if err != nil {
		return nil, refusal.BadRequest("the body cannot be read: " + err.Error())
	}
	out, err := json.Marshal(metav1.TypeMeta{APIVersion: envelope.APIVersion, Kind: envelope.Kind})
	switch {
	case err != nil || string(members) == "{}":
		return out, err
	case string(out) == "{}":
		return members, nil
	}
	return append(append(bytes.TrimSuffix(out, []byte("}")), ','), members[1:]...), nil
}
