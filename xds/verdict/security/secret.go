package security

import (
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// Secret judges a secret.
func Secret(j *verdict.Judge, object *config.Config) { (&judge{j}).secret(object) }

// secret judges whether the server can open a secret, whether its certificates are valid, and whether
// the clusters that it names are followed. A secret that no object names is fine.
func (j *judge) secret(object *config.Config) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Sealed == nil {
		return
	}
	j.clusters(object, spec)
	j.Read(verdict.SecretRow, object.Key().Path())
	if verdict.Unopened(spec, j.Facts()) {
		j.Add(verdict.Verdict{
			Code: verdict.SecretClosed, Field: "data",
			Message: fmt.Sprintf("is sealed with key %s, which the leading server lacks: proxies of that server do not get the secret", spec.Sealed.Box.Key),
			Remedy:  "hand the key over with portolan secret key export and import, or store the secret again",
		})
	}
	for _, c := range spec.Sealed.Certificates {
		v := verdict.Verdict{Code: verdict.CertificateEnds, Field: fieldOf(c.Entry)}
		switch at := c.NotAfter.Format(time.RFC3339); verdict.StageOf(c, j.Facts().Minute) {
		case verdict.Ended:
			v.Message, v.Remedy = fmt.Sprintf("%q ended on %s: peers refuse it", c.Subject, at), "renew it, and store the new one with portolan secret tls"
		case verdict.Ending:
			v.Message, v.Remedy = fmt.Sprintf("%q ends on %s", c.Subject, at), "renew it, and store the new one with portolan secret tls"
		case verdict.Early:
			v.Message, v.Remedy = fmt.Sprintf("%q is not valid before %s: peers refuse it", c.Subject, c.NotBefore.Format(time.RFC3339)), "check the clock of this machine, or wait"
		default:
			continue
		}
		j.Add(v)
	}
}

// fieldOf returns the field that an entry of a Secret has in the document that users write.
func fieldOf(entry string) string { return "data[" + entry + "]" }
