package objects

import (
	"strings"
	"testing"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
)

// TestMerge: what one side has changed is taken from it; where both have changed the same, and not
// to the same, the lines are marked.
func TestMerge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, base, mine, theirs, want string }{
		{"nobody", "a: 1", "a: 1", "a: 1", "a: 1\n"},
		{"different fields", "a: 1\nb: 2", "a: 5\nb: 2", "a: 1\nb: 6", "a: 5\nb: 6\n"},
		{"the same", "a: 1", "a: 2", "a: 2", "a: 2\n"},
		{"added by both", "a: 1", "a: 1\nc: 2", "a: 1\nb: 3", "a: 1\nb: 3\nc: 2\n"},
		{"removed and kept", "a: 1\nb: 2", "b: 2", "a: 1\nb: 3", "b: 3\n"},
		{"one field by both", "a: 1\nb: 2", "a: 2\nb: 2", "a: 3\nb: 2",
			"<<<<<<< yours\na: 2\n||||||| opened\na: 1\n=======\na: 3\n>>>>>>> stored\nb: 2\n"},
		{"removed and changed", "a: 1\nb: 2", "b: 2", "a: 3\nb: 2",
			"<<<<<<< yours\n||||||| opened\na: 1\n=======\na: 3\n>>>>>>> stored\nb: 2\n"},
		{"added differently", "b: 2", "a: 1\nb: 2", "a: 3\nb: 2",
			"<<<<<<< yours\na: 1\n||||||| opened\n=======\na: 3\n>>>>>>> stored\nb: 2\n"},
		{"deep", "s: {x: {a: 1, b: 2}}", "s: {x: {a: 5, b: 2}}", "s: {x: {a: 1, b: 6}}", "s:\n  x:\n    a: 5\n    b: 6\n"},
		{"a list by one", "l: [1, 2]\nz: 1", "l: [1, 2, 3]\nz: 1", "l: [1, 2]\nz: 2", "l:\n- 1\n- 2\n- 3\nz: 2\n"},
		{"named elements", "l: [{name: x, v: 1}, {name: y1, v: 1}]", "l: [{name: x, v: 2}, {name: y1, v: 1}]", "l: [{name: x, v: 1}, {name: y1, v: 3}]",
			"l:\n- name: x\n  v: 2\n- name: y1\n  v: 3\n"},
		{"lines of a list by both", "l: [1, 2, 3]", "l: [7, 2, 3]", "l: [8, 2, 3]",
			"l:\n<<<<<<< yours\n- 7\n||||||| opened\n- 1\n=======\n- 8\n>>>>>>> stored\n- 2\n- 3\n"},
		{"a list that became a text", "l: [1]", "l: x", "l: [2]",
			"<<<<<<< yours\nl: x\n||||||| opened\nl:\n- 1\n=======\nl:\n- 2\n>>>>>>> stored\n"},
	} {
		merged := mergeFields(tree(t, test.mine), tree(t, test.base), tree(t, test.theirs))
		got := mergeTexts(render(t, merged.mine), render(t, merged.base), render(t, merged.theirs), "yours", "opened", "stored")
		clitest.Same(t, test.name, got, test.want)
		if marked(got) != strings.Contains(test.want, "<<<<") {
			t.Errorf("%s: marked is wrong", test.name)
		}
	}
}

func tree(t *testing.T, text string) any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func render(t *testing.T, value any) string {
	t.Helper()
	text, err := yamlv2.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
