package config_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/config"
)

// TestMembersAndElements compares the parts of a text with those of encoding/json.
func TestMembersAndElements(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, ` { } `, ` [ ] `, `null`, `1`, `"a"`, `true`, `{"a":1}`, `[1]`, `{"a" : 1 , "b":[1,{"c":"}"}],"c":null}`,
		"[\n1,\t\"a,]\" , {\"b\":\"\\\"\"} ,[],{} ,-1.5e3,false\r\n]", `{"a\"b":"\\","\u0061":"]"}`, `{"":{"":[[]]}}`, `[[[1,2],[3]],"[",{"a":"{"}]`,
	} {
		var wantMembers map[string]json.RawMessage
		var wantElements []json.RawMessage
		_ = json.Unmarshal([]byte(text), &wantMembers) // nil for no mapping
		isList := json.Unmarshal([]byte(text), &wantElements) == nil && text != "null"
		members := map[string]json.RawMessage{}
		for key, value := range config.Members([]byte(text)) {
			members[key] = value
		}
		if d := cmp.Diff(len(wantMembers), len(members)); d != "" {
			t.Errorf("%s: members (-want +got):\n%s", text, d)
		}
		for key, want := range wantMembers {
			if d := cmp.Diff(string(want), string(members[key])); d != "" {
				t.Errorf("%s: the member %q (-want +got):\n%s", text, key, d)
			}
		}
		elements, ok := config.Elements([]byte(text))
		if ok != isList || len(elements) != len(wantElements) {
			t.Errorf("%s: %d elements, %v, and must be %d, %v", text, len(elements), ok, len(wantElements), isList)
			continue
		}
		for i, want := range wantElements {
			if d := cmp.Diff(string(want), string(elements[i])); d != "" {
				t.Errorf("%s: element %d (-want +got):\n%s", text, i, d)
			}
		}
	}
}
