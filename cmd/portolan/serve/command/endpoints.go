package command

import (
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/discovery/filesd"
)

// endpointFiles holds the flags of the registry of endpoint files.
type endpointFiles struct {
	names     []string
	label     string
	domain    string
	namespace string
}

func (o *endpointFiles) register(f *pflag.FlagSet) {
	f.StringArrayVar(&o.names, "endpoints-file", nil, "file with targets and their labels, in JSON or YAML as file_sd of Prometheus reads them, whose services are taken into the mesh; followed; may be repeated")
	f.StringVar(&o.label, "endpoints-service-label", filesd.DefaultServiceLabel, "the label that names the service of targets")
	f.StringVar(&o.domain, "endpoints-domain", filesd.DefaultDomain, "what follows the name of a service of --endpoints-file in its host name, where the name has no dot")
	f.StringVar(&o.namespace, "endpoints-namespace", filesd.DefaultNamespace, "the namespace of services of --endpoints-file that have no label portolan_namespace")
}

func (o *endpointFiles) validate(given func(flag string) bool, add addFault) {
	if len(o.names) == 0 {
		for _, flag := range []string{"endpoints-service-label", "endpoints-domain", "endpoints-namespace"} {
			if given(flag) {
				add(flag, "is of no use without --endpoints-file")
			}
		}
		return
	}
	if err := o.options().Validate(); err != nil {
		add("endpoints-file", "%v", err)
	}
}

// apply requires valid flags.
func (o *endpointFiles) apply(to *serve.Options) {
	if len(o.names) > 0 {
		options := o.options()
		to.Endpoints = &options
	}
}

func (o *endpointFiles) options() filesd.Options {
	return filesd.Options{Files: o.names, ServiceLabel: o.label, Domain: o.domain, Namespace: o.namespace}
}
