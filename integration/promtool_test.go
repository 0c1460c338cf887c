package integration

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtoolBinary is where `make promtool` puts Prometheus' promtool.
const promtoolBinary = "../.tools/promtool"

// needPromtool skips a test where there is no promtool, but fails it in CI.
func needPromtool(t testing.TB) string {
	t.Helper()
	return builtTool(t, "promtool", promtoolBinary, "promtool")
}

// The unit tests of rules, as promtool reads them.
type (
	ruleTests struct {
		RuleFiles          []string   `json:"rule_files"`
		EvaluationInterval string     `json:"evaluation_interval"`
		Tests              []ruleTest `json:"tests"`
	}
	ruleTest struct {
		Name     string       `json:"name"`
		Interval string       `json:"interval"`
		Series   []ruleSeries `json:"input_series"`
		Alerts   []alertTest  `json:"alert_rule_test"`
	}
	ruleSeries struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	alertTest struct {
		At       string  `json:"eval_time"`
		Alert    string  `json:"alertname"`
		Expected []alert `json:"exp_alerts,omitempty"`
	}
	alert struct {
		Labels      map[string]string `json:"exp_labels"`
		Annotations map[string]string `json:"exp_annotations"`
	}
)

// labelOf matches a label in the text of an annotation.
var labelOf = regexp.MustCompile(`{{ \$labels\.([a-z_]+) }}`)

// firing is the alert of a rule for a series with these labels.
func (r alertRule) firing(labels map[string]string) alert {
	a := alert{Labels: maps.Clone(r.Labels), Annotations: map[string]string{}}
	maps.Copy(a.Labels, labels)
	for name, text := range r.Annotations {
		a.Annotations[name] = labelOf.ReplaceAllStringFunc(text, func(m string) string { return labels[labelOf.FindStringSubmatch(m)[1]] })
	}
	return a
}

// testRules has promtool evaluate the shipped rules over series.
func testRules(t *testing.T, tests ...ruleTest) {
	t.Helper()
	promtool := needPromtool(t)
	rules, err := filepath.Abs(filepath.Join(monitoring, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(ruleTests{RuleFiles: []string{rules}, EvaluationInterval: "1m", Tests: tests})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", write(t, "rules_test.yaml", string(text))).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v: %.6000s", err, out)
	}
}

// metricName matches the metrics of Portolan in an expression.
var metricName = regexp.MustCompile(`\bportolan_[a-z0-9_]+`)

// quoted matches the values of labels in an expression.
var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// selectors match where an expression names labels: in a selector, and after by.
var (
	selector  = regexp.MustCompile(`{([^}]*)}`)
	groupedBy = regexp.MustCompile(`\bby \(([^)]*)\)`)
	selecting = regexp.MustCompile(`([a-z_]+) *(?:=~|!=|!~|=)`)
	legend    = regexp.MustCompile(`{{([a-z_]+)}}`)
)

// labelsIn returns the labels that an expression names.
func labelsIn(expr string) []string {
	expr = quoted.ReplaceAllString(expr, "")
	named := map[string]bool{}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		for _, label := range selecting.FindAllStringSubmatch(m[1], -1) {
			named[label[1]] = true
		}
	}
	for _, m := range groupedBy.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			named[strings.TrimSpace(label)] = true
		}
	}
	return slices.Sorted(maps.Keys(named))
}
