package command

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
)

// authorityFlags holds the flags of the mesh's certificate authority.
type authorityFlags struct {
	files   authority.Files
	maxLife time.Duration
	expired time.Duration
}

func (o *authorityFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.files.Cert, "ca-cert", "", "file with the certificate that signs those of workloads, in PEM: a root, or an intermediate one. Default: a root of the server's own, whose key is a secret of the store. The files are read again when they change")
	f.StringVar(&o.files.Key, "ca-key", "", "file with the private key of --ca-cert")
	f.StringVar(&o.files.Root, "ca-root", "", "file with the roots that everybody in the mesh trusts; --ca-cert leads to one of them")
	f.StringVar(&o.files.Chain, "ca-chain", "", "file with the certificates between --ca-cert and its root, if there are any")
	f.DurationVar(&o.maxLife, "max-certificate-ttl", authority.DefaultMaxLife, "the longest life of a certificate that a workload may ask for")
	f.DurationVar(&o.expired, "renew-expired", authority.DefaultRenewExpired, "for how long after its end a certificate of a workload can still be renewed with it, unless it is revoked; 0 is never. All servers of a store should agree")
}

func (o *authorityFlags) validate(add addFault) {
	given := o.files.Cert != "" || o.files.Key != "" || o.files.Root != "" || o.files.Chain != ""
	for flag, value := range map[string]string{"ca-cert": o.files.Cert, "ca-key": o.files.Key, "ca-root": o.files.Root} {
		if given && value == "" {
			add(flag, "is missing: --ca-cert, --ca-key and --ca-root belong together")
		}
	}
	if o.expired < 0 {
		add("renew-expired", "%v is less than 0", o.expired)
	}
	if o.maxLife < authority.ShortestLife {
		add("max-certificate-ttl", "%v is too short: give %v or more", o.maxLife, authority.ShortestLife)
	}
}

// apply requires valid flags.
func (o *authorityFlags) apply(to *serve.Options) {
	if o.files != (authority.Files{}) {
		to.Authority = &o.files
	}
	to.MaxCertificateLife, to.RenewExpired = o.maxLife, o.expired
}
