package proxies

import (
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/admin"
)

const secretHelp = `

NEEDED BY are the clusters and listeners of the proxy that name the secret; -o json has
all of them. Of a secret in files of the proxy's machine a server knows only their name.

With --dump the certificates are those that the Envoy itself has, also those in files:
the config dump of its admin interface, /config_dump?include_eds. A secret without a
STATE there does not come from the server, as those of the bootstrap do not, and is no
difference.`

// secretTable returns a row for each certificate in the secrets that a proxy should have. A
// secret without a known certificate has one row.
func (e *environment) secretTable(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"NAME", "KIND", "STATE", "VALID", "SERIAL", "NOT AFTER", "NOT BEFORE", "SUBJECT", "ISSUER", "NAMES", "NEEDED BY"}}
	t := typeOf(config, "SDS")
	if t == nil {
		return rows, nil
	}
	for _, r := range t.Resources {
		switch s := r.Secret; {
		case s == nil:
			rows = append(rows, []string{r.Name, "", string(r.State), "", "", "", "", "", "", "", ""})
		case len(s.Certificates) == 0:
			subject := ""
			if s.File != "" {
				subject = "in " + s.File + " of its machine"
			}
			rows = append(rows, []string{r.Name, s.Kind, string(r.State), "unknown", "", "", "", subject, "", "", cli.FormatList(s.NeededBy, false)})
		default:
			for _, c := range s.Certificates {
				row := append([]string{r.Name, s.Kind, string(r.State)}, e.certificateCells(c)...)
				rows = append(rows, append(row, cli.FormatList(s.NeededBy, false)))
			}
		}
	}
	return rows, nil
}

func (e *environment) certificateCells(c secret.Certificate) []string {
	valid, now := "true", e.Now()
	if now.Before(c.NotBefore) || !now.Before(c.NotAfter) {
		valid = "false"
	}
	return []string{
		valid, c.Serial, c.NotAfter.UTC().Format(time.RFC3339), c.NotBefore.UTC().Format(time.RFC3339), c.Subject, c.Issuer, cli.FormatList(c.Names, false),
	}
}
