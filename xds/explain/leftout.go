package explain

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// leftOut lists the workloads that a destination selects, but that are no endpoint of it
// because of their health. Each comes with what is known of its health.
func (e *explainer) leftOut(d Destination) []string {
	service := e.view().Service(host.Name(d.Host))
	if service == nil {
		return nil
	}
	var subset labels.Instance
	if d.Subset != "" {
		subset = e.view().Rule(service).Subset(d.Subset).GetLabels()
	}
	has := map[string]bool{}
	for _, endpoint := range e.view().EndpointsOf(service) {
		has[endpoint.Address] = true
	}
	configs := e.push.Inputs().Configs
	var out []string
	for _, s := range service.Services {
		a := s.Attributes
		entry := configs.Configs().Value(config.Key{Kind: schema.ServiceEntry, Namespace: a.Namespace, Name: a.Name}.Path())
		if a.Provider != discovery.External || entry == nil {
			continue
		}
		selector := labels.Instance(entry.Spec.(*networking.ServiceEntry).GetWorkloadSelector().GetLabels())
		if len(selector) == 0 {
			continue
		}
		for w := range configs.List(schema.WorkloadEntry, a.Namespace) {
			spec := w.Spec.(*networking.WorkloadEntry)
			of := labels.Instance(spec.GetLabels())
			_, withdrawn := health.Withdrawn(w.Annotations)
			if !withdrawn && !health.Checked(w.Annotations) || !selector.SubsetOf(of) || !subset.SubsetOf(of) || has[spec.GetAddress()] {
				continue
			}
			if text := fmt.Sprintf("%s: %s", w.Key(), healthOf(w, configs.Health().Value(health.Path(w.Namespace, w.Name)))); !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// healthOf says why a workload is withdrawn, or what is known of its health.
func healthOf(w *config.Config, r *health.Report) string {
	if why, ok := health.Withdrawn(w.Annotations); ok {
		return why
	}
	if r == nil || r.Unknown || r.UID != "" && r.UID != w.UID {
		return "it asks for health checks (" + health.ChecksAnnotation + "), and nobody has reported its health yet"
	}
	text := "it was reported not to be healthy"
	if words := strings.TrimSpace(r.Reason + " " + r.Message); words != "" {
		text += " (" + words + ")"
	}
	return text
}
