package maintenance_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// TestDiagnostics: a server tells of its process over its socket alone, and of all metrics,
// also those that have no value.
func TestDiagnostics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kettles_total", Help: "Kettles."}, []string{"colour"}))
	o := all(&store{})
	o.Diagnostics = &maintenance.Diagnostics{
		Settings: []maintenance.Setting{{Name: "xds-address", Value: "x", Given: true}}, Log: func() []byte { return []byte("msg=ready\n") }, Metrics: registry,
	}
	s, _ := start(t, o, nil)
	for path, has := range map[string]string{
		maintenance.SettingsPath: `{"items":[{"name":"xds-address","value":"x","given":true}]}`, maintenance.LogPath: "msg=ready\n",
		maintenance.MetricsPath: `fqName: "kettles_total"`, maintenance.GoroutinesPath: "goroutine profile: total", maintenance.HeapPath: "\x1f\x8b",
	} {
		if a := s.Local().Do(t, http.MethodGet, path, ""); a.Code != http.StatusOK || !strings.Contains(a.Body, has) {
			t.Errorf("%s: %d %.300s", path, a.Code, a.Body)
		}
		if a := s.Do(t, http.MethodGet, path, ""); a.Code != http.StatusForbidden || strings.Contains(a.Body, has) {
			t.Errorf("%s from elsewhere: %d %s", path, a.Code, a.Body)
		}
		if a := s.Local().Do(t, http.MethodPost, path, ""); a.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d %s", path, a.Code, a.Body)
		}
	}
	if a := s.Local().Do(t, http.MethodGet, maintenance.MetricsPath, ""); !strings.Contains(a.Body, "variableLabels: {colour}") {
		t.Errorf("labels: %s", a.Body)
	}

	silent, _ := start(t, maintenance.Options{Diagnostics: &maintenance.Diagnostics{Metrics: registry}}, nil)
	if a := silent.Local().Do(t, http.MethodGet, maintenance.LogPath, ""); a.Code != http.StatusNotFound || !strings.Contains(a.Body, "standard error") {
		t.Errorf("without a log: %d %s", a.Code, a.Body)
	}
	var settings maintenance.Settings
	if a := silent.Local().Do(t, http.MethodGet, maintenance.SettingsPath, ""); json.Unmarshal([]byte(a.Body), &settings) != nil || settings.Items == nil {
		t.Errorf("without settings: %d %s", a.Code, a.Body)
	}
}
