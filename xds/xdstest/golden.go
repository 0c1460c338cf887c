package xdstest

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/golden"
	"sigs.k8s.io/yaml"
)

// Golden compares messages, as YAML documents, with a file of testdata. With -update the
// test writes the file.
func Golden(tb testing.TB, file string, messages ...proto.Message) {
	tb.Helper()
	documents := make([]string, len(messages))
	for i, m := range messages {
		asJSON, err := protojson.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			tb.Fatal(err)
		}
		documents[i] = string(asYAML)
	}
	golden.Assert(tb, strings.Join(documents, "---\n"), file)
}
