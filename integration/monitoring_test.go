package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// monitoring has the alert rules and the dashboard that people install.
const monitoring = "../examples/monitoring"

// alertRule is a rule of alerts.yaml.
type alertRule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func readAlertRules(t *testing.T) []alertRule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(monitoring, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []alertRule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var rules []alertRule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there are no rules")
	}
	return rules
}

// alarmRow matches a row of the table of alarms that has an alert.
var alarmRow = regexp.MustCompile("(?m)^\\| `(Portolan[A-Za-z]+)` \\| `([^`]+)`( for a minute| for 5 minutes)? \\|[^|]*\\| [^|]+ \\| [^|]+ \\|$")

// TestLayersAlarmsHaveRules: each alarm of the page has its rule, with the same expression and
// the same delay, and each rule is on the page.
func TestLayersAlarmsHaveRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations/alarms.md")
	if err != nil {
		t.Fatal(err)
	}
	delays := map[string]string{"": "", " for a minute": "1m", " for 5 minutes": "5m"}
	told := map[string]alertRule{}
	for _, row := range alarmRow.FindAllStringSubmatch(string(page), -1) {
		if _, twice := told[row[1]]; twice {
			t.Errorf("the page has %s twice", row[1])
		}
		told[row[1]] = alertRule{Alert: row[1], Expr: row[2], For: delays[row[3]]}
	}
	if n := strings.Count(string(page), "| `Portolan"); n != len(told) {
		t.Errorf("the page has %d alarms, of which %d have the form of one", n, len(told))
	}
	seen := map[string]bool{}
	for _, rule := range readAlertRules(t) {
		want, ok := told[rule.Alert]
		switch {
		case seen[rule.Alert]:
			t.Errorf("there are two rules %s", rule.Alert)
		case !ok:
			t.Errorf("the page does not have %s", rule.Alert)
		case rule.Expr != want.Expr || rule.For != want.For:
			t.Errorf("%s: the rule is %s for %q, the page says %s for %q", rule.Alert, rule.Expr, rule.For, want.Expr, want.For)
		}
		if !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) || rule.Annotations["summary"] == "" || !strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/operations/alarms.md") {
			t.Errorf("%s: severity, summary or runbook_url is missing: %+v", rule.Alert, rule)
		}
		seen[rule.Alert] = true
	}
	for name := range told {
		if !seen[name] {
			t.Errorf("there is no rule for %s", name)
		}
	}
}

// dashboard is what the tests read of dashboard.json.
type dashboard struct {
	Title      string `json:"title"`
	UID        string `json:"uid"`
	Templating struct {
		List []struct{ Name, Query string } `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestLayersDashboardIsWhole: its panels are in rows, do not overlap, and show something.
func TestLayersDashboardIsWhole(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" {
		t.Errorf("it has no title or no uid: %q %q", d.Title, d.UID)
	}
	var rows, variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "instance"}) {
		t.Errorf("the variables are %q", variables)
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the id of another panel", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s is where %q is, or too far right", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if len(rows) == 0 || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("%q is in no row, or has no title or nothing to show", p.Title)
		}
	}
	if want := []string{"Overview", "Pushes", "Streams", "Store", "Sources", "Certificates", "Refusals"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
}
