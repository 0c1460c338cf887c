package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// kubeServices holds the flags of the registries and the secrets of clusters of Kubernetes.
type kubeServices struct {
	refs          []string
	secrets       []string
	selectEntries bool
	selectPods    bool
}

func (o *kubeServices) register(f *pflag.FlagSet) {
	f.StringArrayVar(&o.refs, "services-kube", nil, "KUBECONFIG, KUBECONFIG#CONTEXT or NAME=KUBECONFIG#CONTEXT of a cluster of Kubernetes, whose services and pods are taken into the mesh; give it again for more. The cluster has the name NAME in the mesh, which its proxies state as CLUSTER_ID, else that of the context")
	f.StringArrayVar(&o.secrets, "secrets-kube", nil, "[NAME=]KUBECONFIG[#CONTEXT]=NAMESPACE,NAMESPACE of a cluster of Kubernetes, whose secrets in these namespaces gateways in the namespaces of these names may use for TLS; they are kept in memory alone. Give it again for more: of a secret in several clusters the first is used, and one of the store goes before all")
	f.BoolVar(&o.selectEntries, "services-select-workload-entries", true, "have Services of clusters select WorkloadEntries of their namespace too")
	f.BoolVar(&o.selectPods, "service-entries-select-pods", true, "have the workloadSelector of ServiceEntries select pods of clusters too")
}

func (o *kubeServices) validate(add addFault) {
	checkClusters("services-kube", o.refs, add)
	var refs []string
	for _, text := range o.secrets {
		if ref, _, err := parseSecrets(text); err != nil {
			add("secrets-kube", "%v", err)
		} else {
			refs = append(refs, ref)
		}
	}
	checkClusters("secrets-kube", refs, add)
}

// checkClusters reports clusters of a flag that cannot be used, and those that are given twice.
func checkClusters(flag string, refs []string, add addFault) {
	seen := map[string]bool{}
	for _, ref := range refs {
		options, err := cluster.ParseRef(ref)
		var c *cluster.Cluster
		if err == nil {
			c, err = cluster.New(options)
		}
		switch {
		case err != nil:
			add(flag, "%v", err)
		case seen[c.Name()]:
			add(flag, "two clusters have the name %s: give one another name, as in NAME=KUBECONFIG", c.Name())
		default:
			seen[c.Name()] = true
		}
	}
}

// parseSecrets splits a value of --secrets-kube into the reference of a cluster and namespaces.
func parseSecrets(text string) (ref string, namespaces []string, err error) {
	at := strings.LastIndexByte(text, '=')
	if at < 0 {
		return "", nil, fmt.Errorf("%q names no namespaces: write KUBECONFIG=NAMESPACE,NAMESPACE", text)
	}
	for _, namespace := range strings.Split(text[at+1:], ",") {
		if faults := validation.IsDNS1123Label(namespace); len(faults) > 0 {
			return "", nil, fmt.Errorf("%q does not end with names of namespaces: write KUBECONFIG=NAMESPACE,NAMESPACE", text)
		}
		if !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	return text[:at], namespaces, nil
}

// apply requires valid flags.
func (o *kubeServices) apply(to *serve.Options) {
	for _, ref := range o.refs {
		if options, err := cluster.ParseRef(ref); err == nil {
			to.Clusters = append(to.Clusters, options)
		}
	}
	for _, text := range o.secrets {
		if ref, namespaces, err := parseSecrets(text); err == nil {
			if options, err := cluster.ParseRef(ref); err == nil {
				to.SecretsKube = append(to.SecretsKube, serve.SecretsKube{Cluster: options, Namespaces: namespaces})
			}
		}
	}
	to.NoSelectWorkloadEntries, to.NoSelectPods = !o.selectEntries, !o.selectPods
}
