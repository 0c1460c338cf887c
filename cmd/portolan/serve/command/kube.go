package command

import (
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// kubeServices holds the flags of the registries of clusters of Kubernetes.
type kubeServices struct {
	refs          []string
	selectEntries bool
	selectPods    bool
}

func (o *kubeServices) register(f *pflag.FlagSet) {
	f.StringArrayVar(&o.refs, "services-kube", nil, "KUBECONFIG, KUBECONFIG#CONTEXT or NAME=KUBECONFIG#CONTEXT of a cluster of Kubernetes, whose services and pods are taken into the mesh; give it again for more. The cluster has the name NAME in the mesh, which its proxies state as CLUSTER_ID, else that of the context")
	f.BoolVar(&o.selectEntries, "services-select-workload-entries", true, "have Services of --services-kube select WorkloadEntries of their namespace too")
	f.BoolVar(&o.selectPods, "service-entries-select-pods", true, "have the workloadSelector of ServiceEntries select pods of --services-kube too")
}

func (o *kubeServices) validate(given func(flag string) bool, add addFault) {
	if len(o.refs) == 0 {
		for _, flag := range []string{"services-select-workload-entries", "service-entries-select-pods"} {
			if given(flag) {
				add(flag, "is of no use without --services-kube")
			}
		}
	}
	seen := map[string]bool{}
	for _, ref := range o.refs {
		options, err := cluster.ParseRef(ref)
		if err != nil {
			add("services-kube", "%v", err)
			continue
		}
		one, err := cluster.New(options)
		switch {
		case err != nil:
			add("services-kube", "%v", err)
		case seen[one.Name()]:
			add("services-kube", "two clusters have the name %s: give one another name, as in NAME=KUBECONFIG", one.Name())
		default:
			seen[one.Name()] = true
		}
	}
}

// apply requires valid flags.
func (o *kubeServices) apply(to *serve.Options) {
	for _, ref := range o.refs {
		if options, err := cluster.ParseRef(ref); err == nil {
			to.Clusters = append(to.Clusters, options)
		}
	}
	to.NoSelectWorkloadEntries, to.NoSelectPods = !o.selectEntries, !o.selectPods
}
