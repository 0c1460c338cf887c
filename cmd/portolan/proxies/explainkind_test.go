package proxies

import (
	"encoding/json"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestExplainKind(t *testing.T) {
	t.Parallel()
	if o := do(t, "", "explain", "cm.data"); o.Code != exit.OK || !strings.HasPrefix(o.Out, "configmap.data  ") {
		t.Errorf("a kind beside the mesh: %+v", o)
	}
	for file, args := range map[string]string{
		"explain-kind.txt":      "role",
		"explain-field.txt":     "vs.spec.http.route",
		"explain-recursive.txt": "peerauthentications.security.istio.io.spec --recursive",
		"explain-enum.txt":      "pa.spec.mtls.mode",
	} {
		o := do(t, "", append([]string{"explain"}, strings.Fields(args)...)...)
		if o.Code != exit.OK || o.Err != "" {
			t.Errorf("%s: %+v", args, o)
		}
		golden.Assert(t, o.Out, file)
	}
}

// TestExplainRecursiveEnds: it lists every kind, and no line twice at one place.
func TestExplainRecursiveEnds(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"vs", "dr", "ef", "secret", "tokenissuer", "se"} {
		o := do(t, "", "explain", kind, "--recursive")
		if lines := strings.Count(o.Out, "\n"); o.Code != exit.OK || lines < 20 || lines > 500 {
			t.Errorf("%s: %d, %d lines", kind, o.Code, lines)
		}
	}
}

func TestExplainKindAsSchema(t *testing.T) {
	t.Parallel()
	o := do(t, "", "explain", "vs", "-o", "json")
	var schema struct {
		Properties, Definitions map[string]any
	}
	if err := json.Unmarshal([]byte(o.Out), &schema); err != nil || schema.Properties["spec"] == nil || len(schema.Definitions) < 20 {
		t.Errorf("%v: %.200s", err, o.Out)
	}
	if o := do(t, "", "explain", "vs.spec", "-o", "yaml"); o.Code != exit.OK || !strings.Contains(o.Out, "\nproperties:\n") {
		t.Errorf("%.200s", o.Out)
	}
}

func TestExplainKindRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                     "accepts 1 arg",
		"frob":                 `unknown kind "frob"`,
		"virtualservic":        "did you mean virtualservices?",
		"vs.spec.hots":         "did you mean hosts?",
		"vs.spec.kettle":       "it has exportTo, gateways",
		"refusl":               "portolan explain refusal",
		"vs -o xml":            "-o",
		"vs --recursiv":        "did you mean --recursive?",
		"reqest --from a":      "portolan explain request",
		"vs.spec.hosts.kettle": "has no fields",
	} {
		if o := do(t, "", append([]string{"explain"}, strings.Fields(args)...)...); o.Code != exit.Usage || !strings.Contains(o.Err, want) || o.Out != "" {
			t.Errorf("explain %s: %+v", args, o)
		}
	}
}

// TestExplainCompletes: a shell offers kinds, and fields after a dot.
func TestExplainCompletes(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"":              "virtualservice\tvs\n",
		"vs.":           "vs.spec\tVirtualService\n",
		"vs.spec.http.": "vs.spec.http.route\t[]HTTPRouteDestination\n",
	} {
		if o := do(t, "", "__complete", "explain", word); !strings.Contains(o.Out, want) {
			t.Errorf("%q: %+v", word, o)
		}
	}
}
