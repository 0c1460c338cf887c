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
	checkClusters("services-kube", o.refs, otherName, add)
	var refs []string
	for _, text := range o.secrets {
		ref, _, faults := parseSecrets(text)
		for _, err := range faults {
			add("secrets-kube", "%v", err)
		}
		if ref != "" {
			refs = append(refs, ref)
		}
	}
	checkClusters("secrets-kube", refs, "name all namespaces of a cluster in one value, and give another cluster another name, as in NAME=KUBECONFIG", add)
}

// otherName says what to do where two clusters have one name.
const otherName = "give one another name, as in NAME=KUBECONFIG"

// checkClusters reports clusters of a flag that cannot be used, and those that are given twice, with
// what to do then.
func checkClusters(flag string, refs []string, twice string, add addFault) {
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
			add(flag, "two clusters have the name %s: %s", c.Name(), twice)
		default:
			seen[c.Name()] = true
		}
	}
}

// secretsForm is the form of a value of --secrets-kube.
const secretsForm = "[NAME=]KUBECONFIG[#CONTEXT]=NAMESPACE,NAMESPACE"

// parseSecrets splits a value of --secrets-kube into the reference of a cluster, "" if there is none,
// and namespaces. It returns all faults but those of the reference.
func parseSecrets(text string) (ref string, namespaces []string, faults []error) {
	at := strings.LastIndexByte(text, '=')
	if at < 0 || text[at+1:] == "" {
		return "", nil, []error{fmt.Errorf("%q names no namespaces: write %s", text, secretsForm)}
	}
	if file := text[at+1:]; strings.ContainsAny(file, "./#") && !strings.Contains(file, ",") { // NAME=KUBECONFIG
		return "", nil, []error{fmt.Errorf("%q names no namespaces, and %q is none: write %s", text, file, secretsForm)}
	}
	for _, namespace := range strings.Split(text[at+1:], ",") {
		switch {
		case namespace == "":
			faults = append(faults, fmt.Errorf("%q has an empty namespace: write %s", text, secretsForm))
		case len(validation.IsDNS1123Label(namespace)) > 0:
			faults = append(faults, fmt.Errorf("%q: %q is no namespace, which has lower-case letters, digits and \"-\" inside, and 63 characters at most: write %s", text, namespace, secretsForm))
		case slices.Contains(namespaces, namespace):
			faults = append(faults, fmt.Errorf("%q names the namespace %s twice", text, namespace))
		default:
			namespaces = append(namespaces, namespace)
		}
	}
	if at == 0 {
		return "", namespaces, append(faults, fmt.Errorf("%q names no kubeconfig: write %s", text, secretsForm))
	}
	return text[:at], namespaces, faults
}

// apply requires valid flags.
func (o *kubeServices) apply(to *serve.Options) {
	for _, ref := range o.refs {
		if options, err := cluster.ParseRef(ref); err == nil {
			to.Clusters = append(to.Clusters, options)
		}
	}
	for _, text := range o.secrets {
		if ref, namespaces, faults := parseSecrets(text); len(faults) == 0 {
			if options, err := cluster.ParseRef(ref); err == nil {
				to.SecretsKube = append(to.SecretsKube, serve.SecretsKube{Cluster: options, Namespaces: namespaces})
			}
		}
	}
	to.NoSelectWorkloadEntries, to.NoSelectPods = !o.selectEntries, !o.selectPods
}
