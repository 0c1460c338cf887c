package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// JSON renders a bootstrap with the field names of Envoy's documentation. Equal
// bootstraps give equal bytes.
func JSON(b *bootstrapv3.Bootstrap) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("render the bootstrap: %w", err)
	}
	// protojson deliberately varies its white space.
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("render the bootstrap: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
