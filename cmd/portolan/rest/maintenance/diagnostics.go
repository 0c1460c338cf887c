package maintenance

import (
	"bytes"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// The paths of what a server tells of its own process, for a report of a fault. They answer a
// GET, are Private, and need the right of the profiles.
const (
	diagnosticsPath = "/debug/portolan"
	// SettingsPath answers with Settings.
	SettingsPath = diagnosticsPath + "/settings"
	// LogPath answers with the newest lines of the log.
	LogPath = diagnosticsPath + "/log"
	// MetricsPath answers with a line for each registered metric, also for those that have no
	// value yet: its name, its help and its labels.
	MetricsPath = diagnosticsPath + "/metrics"
	// GoroutinesPath answers with the stacks of all goroutines, equal ones counted.
	GoroutinesPath = diagnosticsPath + "/goroutines"
	// HeapPath answers with a profile of the heap, for go tool pprof: stacks and sizes, and
	// nothing of what is in memory.
	HeapPath = diagnosticsPath + "/heap"
)

// Setting is one setting of a server, as it is in effect.
type Setting struct {
	// Name is the flag.
	Name string `json:"name"`
	// Value is its value in text.
	Value string `json:"value"`
	// Given is true if somebody set it, false for the default.
	Given bool `json:"given,omitempty"`
}

// Settings are the settings of a server.
type Settings struct {
	Items []Setting `json:"items"`
}

// Diagnostics is what a server tells of its own process.
type Diagnostics struct {
	// Settings are those in effect. They name files of secrets, and have no secrets.
	Settings []Setting
	// Log returns the newest lines of the log; it may be nil.
	Log func() []byte
	// Metrics has the metrics of the server.
	Metrics prometheus.Collector
}

// register adds the paths to a config API that does not serve yet.
func (d *Diagnostics) register(api *rest.Server) {
	for path, answer := range map[string]func() (contentType string, body []byte, err error){
		LogPath: d.log, MetricsPath: d.metrics, GoroutinesPath: goroutines, HeapPath: heap,
	} {
		endpoint(api, path, methods{http.MethodGet: api.Private(func(w http.ResponseWriter, _ *http.Request) error {
			contentType, body, err := answer()
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write(body) // an error means that the client is gone
			return nil
		})})
	}
	endpoint(api, SettingsPath, methods{http.MethodGet: api.Private(func(w http.ResponseWriter, _ *http.Request) error {
		rest.WriteJSON(w, http.StatusOK, Settings{Items: append([]Setting{}, d.Settings...)})
		return nil
	})})
}

const plainText = "text/plain; charset=utf-8"

func (d *Diagnostics) log() (string, []byte, error) {
	if d.Log == nil {
		return "", nil, refusal.NotFound("this server keeps no lines of its log: read them where its standard error goes")
	}
	return plainText, d.Log(), nil
}

func (d *Diagnostics) metrics() (string, []byte, error) {
	found := make(chan *prometheus.Desc)
	go func() {
		defer close(found)
		d.Metrics.Describe(found)
	}()
	var lines []string
	for desc := range found {
		lines = append(lines, desc.String()+"\n")
	}
	slices.Sort(lines)
	return plainText, []byte(strings.Join(slices.Compact(lines), "")), nil
}

func goroutines() (string, []byte, error) { return profile(plainText, "goroutine", 1) }

func heap() (string, []byte, error) { return profile("application/octet-stream", "heap", 0) }

func profile(contentType, name string, debug int) (string, []byte, error) {
	var out bytes.Buffer
	err := pprof.Lookup(name).WriteTo(&out, debug)
	return contentType, out.Bytes(), err
}
