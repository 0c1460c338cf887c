package filesd

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Status describes the state of the registry. Its JSON form is an API.
type Status struct {
	Synced bool         `json:"synced"`
	Files  []FileStatus `json:"files"`
	// Flaws lists the faults of targets.
	Flaws []Flaw `json:"flaws,omitempty"`
}

// FileStatus describes the state of one file.
type FileStatus struct {
	Name string `json:"name"`
	// Targets is the number of targets that are served.
	Targets int `json:"targets"`
	// Problem says why the content may be old, empty if it is not. Since is when that began.
	Problem string     `json:"problem,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
}

// Status returns the current state of the registry.
func (r *Registry) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Status{Synced: r.HasSynced()}
	for _, s := range r.sources {
		one := FileStatus{Name: s.name, Targets: len(s.known.targets)}
		if s.problem != nil {
			since := s.since
			one.Problem, one.Since = s.problem.Error(), &since
		}
		out.Files = append(out.Files, one)
		out.Flaws = append(out.Flaws, s.known.flaws...)
	}
	return out
}

// Places returns where the files list the targets of a service, in the order of files and
// groups: "targets.yaml: group 2". It returns none for a service of another registry.
func (r *Registry) Places(hostname host.Name, namespace string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := key{hostname, namespace}
	for _, s := range r.sources {
		last := 0
		for _, t := range s.known.targets {
			if t.key == of && t.group != last {
				last = t.group
				out = append(out, fmt.Sprintf("%s: group %d", s.name, t.group))
			}
		}
	}
	return out
}

// SourceStatuses implements discovery.SourceReporter. Each file is a source.
func (r *Registry) SourceStatuses() []discovery.SourceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []discovery.SourceStatus
	for _, s := range r.sources {
		one := discovery.SourceStatus{Name: s.name, State: discovery.SourceLive, Services: len(grouped([]*listed{s.known}))}
		if s.problem != nil {
			one.State, one.AsOf, one.Problem = discovery.SourceLastKnown, s.since, s.problem.Error()
		}
		if !s.settled {
			one.State = discovery.SourceSyncing
		}
		out = append(out, one)
	}
	return out
}

// Ready returns nil once the registry has synced, or else what it waits for.
func (r *Registry) Ready() error {
	if r.HasSynced() {
		return nil
	}
	return fmt.Errorf("files of endpoints are not read yet: %w", errors.Join(r.Degraded(), errors.New("they are waited for")))
}

// Degraded returns why the served content may be old, nil if it is not.
func (r *Registry) Degraded() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var reasons []error
	for _, s := range r.sources {
		if s.problem != nil {
			reasons = append(reasons, fmt.Errorf("since %s: %w", s.since.UTC().Format(time.RFC3339), s.problem))
		}
	}
	return errors.Join(reasons...)
}

var (
	targetsDesc = prometheus.NewDesc("portolan_endpoint_file_targets", "Targets that are served.", []string{"file"}, nil)
	upDesc      = prometheus.NewDesc("portolan_endpoint_file_up", "1 while the file can be read; /readyz says why it cannot.", []string{"file"}, nil)
	leftOutDesc = prometheus.NewDesc("portolan_endpoint_file_left_out", "Targets, and groups of them, that cannot be in the mesh.", []string{"file"}, nil)
)

// collector exports the state of a registry as metrics.
type collector struct{ r *Registry }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{targetsDesc, upDesc, leftOutDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	status := c.r.Status()
	for _, f := range status.Files {
		up := 1.0
		if f.Problem != "" {
			up = 0
		}
		flaws := slices.DeleteFunc(slices.Clone(status.Flaws), func(flaw Flaw) bool { return flaw.File != f.Name || !flaw.LeftOut })
		out <- prometheus.MustNewConstMetric(targetsDesc, prometheus.GaugeValue, float64(f.Targets), f.Name)
		out <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, up, f.Name)
		out <- prometheus.MustNewConstMetric(leftOutDesc, prometheus.GaugeValue, float64(len(flaws)), f.Name)
	}
}
