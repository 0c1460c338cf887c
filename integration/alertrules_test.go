package integration

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertCondition is what a rule fires on: the value of a series, before and after.
type alertCondition struct {
	series        string // with its labels, but for instance
	healthy, sick string
	// with are further series that change as it does, beside those that do not change.
	with   []string
	beside map[string]string
	// fires is the minute by which the alert fires, where that is not soon after minute 5.
	fires int
	// labels are the labels of the alert, without instance; nil stands for those of the series.
	// whole says that the alert is about all servers.
	labels map[string]string
	whole  bool
}

// alertConditions has one for each rule.
var alertConditions = map[string]alertCondition{
	"PortolanServerDown":               {series: `up{job="portolan"}`, healthy: "1", sick: "0"},
	"PortolanStale":                    {series: `portolan_cache_staleness_seconds`, healthy: "5", sick: "61"},
	"PortolanStoreUnreachable":         {series: `portolan_store_reachable`, healthy: "1", sick: "0"},
	"PortolanLagging":                  {series: `portolan_cache_handled_lag`, healthy: "0", sick: "3"},
	"PortolanNoLeader":                 {series: `portolan_leader{exported_job="server"}`, healthy: "1", sick: "0", whole: true},
	"PortolanLeadershipChanges":        {series: `portolan_leader_terms_total{exported_job="server"}`, healthy: "1", sick: "14"},
	"PortolanStoreDown":                {series: `portolan_store_up`, healthy: "1", sick: "0"},
	"PortolanStoreRestarts":            {series: `portolan_store_restarts_total`, healthy: "1", sick: "6"},
	"PortolanStoreLowDisk":             {series: `portolan_store_free_bytes`, healthy: "2e+09", sick: "1e+09"},
	"PortolanStoreFilling":             {series: `portolan_store_db_bytes`, healthy: "79", sick: "81", beside: map[string]string{"portolan_store_quota_bytes": "100"}},
	"PortolanStoreFull":                {series: `portolan_store_alarm{alarm="NOSPACE"}`, healthy: "0", sick: "1"},
	"PortolanStoreCorrupt":             {series: `portolan_store_alarm{alarm="CORRUPT"}`, healthy: "0", sick: "1"},
	"PortolanStoreMemberAway":          {series: `portolan_store_members{status="unreachable"}`, healthy: "0", sick: "1"},
	"PortolanStoreNewer":               {series: `portolan_store_newer`, healthy: "0", sick: "1"},
	"PortolanNewEpoch":                 {series: `portolan_cache_epochs_total`, healthy: "0", sick: "1"},
	"PortolanCacheDiffered":            {series: `portolan_cache_checks_total{outcome="different"}`, healthy: "0", sick: "1"},
	"PortolanBackupOld":                {series: `portolan_backup_last_success_timestamp_seconds`, healthy: "0", sick: "0", fires: 121},
	"PortolanBackupNever":              {series: `portolan_backup_failures_total`, healthy: "0", sick: "1"},
	"PortolanResourceNotBuilt":         {series: `portolan_xds_failed_resources`, healthy: "0", sick: "1"},
	"PortolanBrokenValues":             {series: `portolan_cache_broken_values`, healthy: "0", sick: "1"},
	"PortolanForeignKeys":              {series: `portolan_cache_foreign_keys`, healthy: "0", sick: "1"},
	"PortolanSourceDegraded":           {series: `portolan_source_degraded{source="/etc/mesh"}`, healthy: "0", sick: "1"},
	"PortolanSourceDiffers":            {series: `portolan_source_differing_servers{source="/etc/mesh"}`, healthy: "0", sick: "1"},
	"PortolanPeerBroken":               {series: `portolan_config_peer_broken{peer="xds://hub:15010"}`, healthy: "0", sick: "1"},
	"PortolanDirectoryBroken":          {series: `portolan_config_dir_broken{dir="/etc/mesh"}`, healthy: "0", sick: "1"},
	"PortolanHostsWithoutAddress":      {series: `portolan_hosts_without_address`, healthy: "0", sick: "7"},
	"PortolanConsulDegraded":           {series: `portolan_consul_degraded{datacenter="dc1"}`, healthy: "0", sick: "1"},
	"PortolanEndpointFileUnreadable":   {series: `portolan_endpoint_file_up{file="/etc/targets.json"}`, healthy: "1", sick: "0"},
	"PortolanRefusals":                 {series: `portolan_xds_rejections_total{type="RDS"}`, healthy: "0", sick: "1"},
	"PortolanLateClusters":             {series: `portolan_xds_late_clusters_total{type="RDS"}`, healthy: "0", sick: "1"},
	"PortolanAuthorityExpires":         {series: `portolan_authority_expiry_seconds{certificate="root"}`, healthy: "2592001", sick: "2591999"},
	"PortolanMemberCertificateExpires": {series: `portolan_store_certificate_expiry_seconds{certificate="member"}`, healthy: "1728001", sick: "1727999"},
	"PortolanMemberAuthorityExpires":   {series: `portolan_store_certificate_expiry_seconds{certificate="authority"}`, healthy: "31536001", sick: "31535999"},
	"PortolanSecretExpires":            {series: `portolan_certificate_expiry_seconds{namespace="shop",name="door",entry="tls.crt"}`, healthy: "604801", sick: "604799"},
	"PortolanCertificatesUnavailable":  {series: `portolan_certificates_refused_total{reason="unavailable"}`, healthy: "0", sick: "1"},
	"PortolanCertificatesUnrecorded":   {series: `portolan_certificates_unrecorded_total`, healthy: "0", sick: "1"},
	"PortolanLongDefragmentation": {
		series: `portolan_store_defrag_seconds_bucket{le="12.8"}`, healthy: "0", sick: "1", labels: map[string]string{},
		with:   []string{`portolan_store_defrag_seconds_bucket{le="+Inf"}`},
		beside: map[string]string{`portolan_store_defrag_seconds_bucket{le="3.2"}`: "0"},
	},
}

// seriesLabel matches a label of a series, and its value.
var seriesLabel = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)

// at adds the label instance to a series.
func at(instance, series string) string {
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	if labels != "" {
		labels += ","
	}
	return fmt.Sprintf(`%s{%sinstance="%s"}`, name, labels, instance)
}

func labelsOf(series string) map[string]string {
	out := map[string]string{}
	for _, m := range seriesLabel.FindAllStringSubmatch(series, -1) {
		out[m[1]] = strings.ReplaceAll(m[2], `\\`, `\`)
	}
	return out
}

// TestAlertRulesFire: each rule fires once on its condition, and neither before nor on any
// other.
func TestAlertRulesFire(t *testing.T) {
	t.Parallel()
	rules := readAlertRules(t)
	var tests []ruleTest
	for _, rule := range rules {
		c, ok := alertConditions[rule.Alert]
		if !ok {
			t.Errorf("no condition makes %s fire", rule.Alert)
			continue
		}
		series := []ruleSeries{
			{at("cp-1", c.series), c.healthy + "x4 " + c.sick + "x200"},
			{at("cp-2", c.series), c.healthy + "x205"}, // another server, which is well
		}
		if c.fires > 0 || c.whole {
			series = series[:1]
		}
		for _, name := range c.with {
			series = append(series, ruleSeries{at("cp-1", name), c.healthy + "x4 " + c.sick + "x200"})
		}
		for _, name := range slices.Sorted(maps.Keys(c.beside)) {
			series = append(series, ruleSeries{at("cp-1", name), c.beside[name] + "x205"})
		}
		labels := c.labels
		if labels == nil {
			labels = labelsOf(c.series)
		}
		if c.whole {
			labels = map[string]string{}
		} else {
			labels = maps.Clone(labels)
			labels["instance"] = "cp-1"
		}
		fires := max(c.fires, 7)
		if rule.For == "5m" {
			fires = 11
		}
		test := ruleTest{Name: rule.Alert, Interval: "1m", Series: series}
		for _, other := range rules {
			test.Alerts = append(test.Alerts, alertTest{At: "4m", Alert: other.Alert})
			if other.Alert != rule.Alert {
				test.Alerts = append(test.Alerts, alertTest{At: fmt.Sprintf("%dm", fires), Alert: other.Alert})
			}
		}
		if rule.For != "" { // not at once
			test.Alerts = append(test.Alerts, alertTest{At: "5m", Alert: rule.Alert})
		}
		test.Alerts = append(test.Alerts, alertTest{At: fmt.Sprintf("%dm", fires), Alert: rule.Alert, Expected: []alert{rule.firing(labels)}})
		tests = append(tests, test)
	}
	if len(alertConditions) != len(rules) {
		t.Errorf("there are %d conditions for %d rules", len(alertConditions), len(rules))
	}
	testRules(t, tests...)
}

// TestExpressionsCanBeParsed: promtool takes the rules, and the expression of each panel.
func TestExpressionsCanBeParsed(t *testing.T) {
	t.Parallel()
	promtool := needPromtool(t)
	var recorded []map[string]string
	for _, p := range readDashboard(t).Panels {
		for i, target := range p.Targets {
			recorded = append(recorded, map[string]string{
				"record": fmt.Sprintf("panel:%d:%d", p.ID, i), "expr": strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"),
			})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": recorded}}})
	if err != nil {
		t.Fatal(err)
	}
	for what, file := range map[string]string{"the rules": filepath.Join(monitoring, "alerts.yaml"), "the dashboard": write(t, "dashboard.yaml", string(text))} {
		if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
}
