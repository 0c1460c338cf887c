package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/side"
)

// binary is the encoding of Kubernetes: a magic number, and runtime.Unknown around the object.
var binary = protobuf.NewSerializer(side.Types, side.Types)

// maxProtobuf bounds a body in protobuf, as Kubernetes bounds all bodies.
const maxProtobuf = 3 << 20

// fromProtobuf returns the JSON of a body in protobuf: an object of the kind of the path, or
// the options of a deletion.
func fromProtobuf(c *call, body []byte) ([]byte, error) {
	if c.r.Method != http.MethodDelete && (c.schema == nil || !side.Types.Recognizes(c.gvk())) {
		return nil, refusal.New(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: "+runtime.ContentTypeJSON+", "+runtime.ContentTypeYAML)
	}
	if len(body) > maxProtobuf {
		return nil, refusal.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the request body is larger than %d KiB, the most in protobuf: send JSON", maxProtobuf>>10))
	}
	object, kind, err := binary.Decode(body, nil, nil)
	if err != nil {
		return nil, refusal.BadRequest(fmt.Sprintf("the request body in protobuf cannot be read: %v", err))
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return json.Marshal(object)
}

// toProtobuf returns an object of a core kind, or a list of them, in protobuf.
func toProtobuf(text []byte) ([]byte, error) {
	var of metav1.TypeMeta
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, err
	}
	object, err := side.Types.New(of.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, object); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = binary.Encode(object, &out)
	return out.Bytes(), err
}
