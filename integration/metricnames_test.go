package integration

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// registered matches a line of registered-metrics.txt in a debug bundle.
var registered = regexp.MustCompile(`(?m)^Desc{fqName: "([a-z0-9_]+)".*constLabels: {(.*)}, variableLabels: {(.*)}}$`)

// ofPrometheus are metrics that Prometheus makes itself, with their labels.
var ofPrometheus = map[string][]string{"up": {"job"}, "ALERTS": {"alertname", "alertstate", "severity"}}

// TestMonitoringNamesRealMetrics: each metric and each label in rules and panels is one that a
// server has which uses all that servers can.
func TestMonitoringNamesRealMetrics(t *testing.T) {
	t.Parallel()
	consul := startConsul(t, consulOptions{})
	hub := startServer(t, serverOptions{})
	s := startFounder(t, newMemberAt(t, "cp-1"), "--anonymous-loopback", "--config-dir", newConfigDir(t, nil).path, "--config-source", "xds://"+hub.xds,
		"--consul-address", consul.url, "--endpoints-file", write(t, "targets.json", "[]"), "--backup-dir", t.TempDir(), "--backup-without-keys")
	has := map[string][]string{}
	for _, m := range registered.FindAllStringSubmatch(string(s.bundle()["registered-metrics.txt"]), -1) {
		labels := []string{"instance", "job"}
		for _, c := range seriesLabel.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, c[1])
		}
		has[m[1]] = append(labels, strings.Split(m[3], ",")...)
	}
	if len(has) < 60 || !slices.Contains(has["portolan_leader"], "job") {
		t.Fatalf("the server has %d metrics: %v", len(has), has)
	}
	for name, labels := range ofPrometheus {
		has[name] = append(labels, "instance")
	}
	check := func(where, expr string, shown []string) {
		t.Helper()
		labels := append(labelsIn(expr), shown...)
		bare := quoted.ReplaceAllString(expr, "")
		names := metricName.FindAllString(bare, -1)
		for name := range ofPrometheus {
			if regexp.MustCompile(`\b` + name + `\{`).MatchString(expr) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s names no metric: %s", where, expr)
		}
		for _, name := range names {
			have, ok := has[name]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, cut := strings.CutSuffix(name, suffix); cut && !ok {
					have, ok = has[base]
					have = append(slices.Clone(have), "le")
				}
			}
			if !ok {
				t.Errorf("%s: no server has the metric %s", where, name)
				continue
			}
			for _, label := range labels {
				if !slices.Contains(have, label) {
					t.Errorf("%s: %s has no label %s, but %v", where, name, label, have)
				}
			}
		}
	}
	for _, rule := range readAlertRules(t) {
		var shown []string
		for _, m := range labelOf.FindAllStringSubmatch(rule.Annotations["summary"], -1) {
			shown = append(shown, m[1])
		}
		check(rule.Alert, rule.Expr, shown)
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			var shown []string
			for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				shown = append(shown, m[1])
			}
			check(p.Title, target.Expr, shown)
			for _, by := range groupedBy.FindAllStringSubmatch(target.Expr, -1) {
				for _, label := range shown {
					if !strings.Contains(","+strings.ReplaceAll(by[1], " ", "")+",", ","+label+",") {
						t.Errorf("%s: the legend has %s, which %s drops", p.Title, label, target.Expr)
					}
				}
			}
		}
	}
}
