package proxies

import (
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// secretTable returns a row for each certificate in the secrets that a proxy should have. A
// secret without a known certificate has one row.
func (e *environment) secretTable(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"NAME", "KIND", "STATE", "VALID", "SERIAL", "NOT AFTER", "NOT BEFORE", "SUBJECT", "NAMES"}}
	t := typeOf(config, "SDS")
	if t == nil {
		return rows, nil
	}
	for _, r := range t.Resources {
		row := []string{r.Name, "", string(r.State), "", "", "", "", "", ""}
		s := r.Secret
		if s == nil {
			rows = append(rows, row)
			continue
		}
		row[1] = s.Kind
		if len(s.Certificates) == 0 {
			row[3] = "unknown" // of a secret in a file, the server knows only the name
			rows = append(rows, row)
			continue
		}
		for _, c := range s.Certificates {
			valid, now := "true", e.Now()
			if now.Before(c.NotBefore) || !now.Before(c.NotAfter) {
				valid = "false"
			}
			rows = append(rows, []string{
				r.Name, s.Kind, string(r.State), valid, c.Serial, c.NotAfter.UTC().Format(time.RFC3339), c.NotBefore.UTC().Format(time.RFC3339), c.Subject, cli.FormatList(c.Names, false),
			})
		}
	}
	return rows, nil
}
