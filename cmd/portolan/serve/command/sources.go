package command

import (
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// sourceFlags holds the flags of sources of configuration besides the store.
type sourceFlags struct {
	dirs        []string
	first       bool
	peers       []string
	exportAll   bool
	clusters    []string
	writeStatus bool
}

func (o *sourceFlags) register(f *pflag.FlagSet) {
	f.StringArrayVar(&o.dirs, "config-dir", nil, "directory of configuration in YAML and JSON, which is followed beside the store and never written; give it again for more. Where several have an object of one name, that of the store is used, else that of the first directory")
	f.StringArrayVar(&o.peers, "config-source", nil, "xds://HOST:PORT of another control plane, Portolan or istiod, whose objects are followed behind the store and the directories, and never written; give it again for more. Parameters: ca, cert, key and token (files, read again at every connection), server-name, tls=true, variant=delta|sotw, as in xds://hub:15012?ca=ca.pem&token=token.txt. A peer on another machine is followed by TLS alone")
	f.StringArrayVar(&o.clusters, "config-kube", nil, "KUBECONFIG, KUBECONFIG#CONTEXT or NAME=KUBECONFIG#CONTEXT of a cluster of Kubernetes, whose Istio objects are followed behind all other sources, and never written; give it again for more. The cluster has the name NAME in the mesh, else that of the context")
	f.BoolVar(&o.writeStatus, "write-status", false, "write into the clusters of --config-kube what became of their objects: conditions, and the addresses of Ingresses")
	f.BoolVar(&o.first, "config-dir-first", false, "have the directories go before the store")
	f.BoolVar(&o.exportAll, "export-sources", false, "give control planes that take this mesh's objects over xDS those of all sources, and not of the store alone. Two meshes that take each other's objects must not both have it")
}

// validate reports sources that are given twice, and peers that cannot be used.
func (o *sourceFlags) validate(add addFault) {
	if o.first && len(o.dirs) == 0 {
		add("config-dir-first", "is of no use without --config-dir")
	}
	seen := map[string]bool{}
	for _, dir := range o.dirs {
		switch clean := filepath.Clean(dir); {
		case dir == "":
			add("config-dir", "is empty: give a directory")
		case seen[clean]:
			add("config-dir", "%s is given twice", dir)
		default:
			seen[clean] = true
		}
	}
	for _, text := range o.peers {
		switch peer, err := parsePeer(text); {
		case err != nil:
			add("config-source", "%v", err)
		case seen[serve.PeerScheme+peer.address]:
			add("config-source", "%s is given twice", serve.PeerScheme+peer.address)
		default:
			seen[serve.PeerScheme+peer.address] = true
		}
	}
	o.checkClusters(add)
}

// checkClusters reports clusters that cannot be used, and those that are given twice.
func (o *sourceFlags) checkClusters(add addFault) {
	if o.writeStatus && len(o.clusters) == 0 {
		add("write-status", "is of no use without --config-kube")
	}
	checkClusters("config-kube", o.clusters, otherName, add)
}

// apply requires valid flags.
func (o *sourceFlags) apply(to *serve.Options) {
	for _, dir := range o.dirs {
		to.ConfigDirs = append(to.ConfigDirs, filepath.Clean(dir))
	}
	for _, text := range o.peers {
		if peer, err := parsePeer(text); err == nil {
			to.ConfigPeers = append(to.ConfigPeers, peer.options())
		}
	}
	for _, ref := range o.clusters {
		if options, err := cluster.ParseRef(ref); err == nil {
			to.ConfigKube = append(to.ConfigKube, options)
		}
	}
	to.WriteStatus = o.writeStatus
	to.ConfigDirsFirst, to.ExportSources = o.first, o.exportAll
}
