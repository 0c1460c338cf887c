package store

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/discovery"
)

func newStoreStatusCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "status",
		Short: "See how the store of a server is, on one screen",
		Long: `See how the store of a server is: how full, how old what is served may be, of the
store, of each registry such as Consul and of each other source, and what somebody should
see to. The exit code is 1 where there is such a problem.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				status, err := remote.Server{Client: api}.StoreStatus(ctx)
				if err != nil {
					return err
				}
				if output != "" {
					err = cli.WriteDocument(env.Stdout, output, status)
				} else {
					err = writeStatus(env.Stdout, status, env.Now())
				}
				if err == nil && len(status.Problems) > 0 {
					err = problemsFound(len(status.Problems))
				}
				return err
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// problemsFound is the error of a status with problems, and their number.
type problemsFound int

func (p problemsFound) Error() string {
	if p == 1 {
		return "there is a problem, see above"
	}
	return fmt.Sprintf("there are %d problems, see above", int(p))
}

// writeStatus prints a status for people.
func writeStatus(out io.Writer, s *maintenance.Status, now time.Time) error {
	server := fmt.Sprintf("%s, process %d on %s", s.Server.Version, s.Server.PID, s.Server.Host)
	rows := [][]string{{"server", server}, {"store", storeKind(s)}}
	if st := s.Store; st != nil {
		rows = append(rows,
			[]string{"identity", "cluster " + st.Cluster + ", instance " + orNone(st.Instance)},
			[]string{"revision", revisions(st)})
		if st.DBBytes > 0 {
			rows = append(rows, []string{"size", sizes(st)})
		}
		rows = append(rows, []string{"alarms", orNone(strings.Join(st.Alarms, ", "))})
	}
	rows = append(rows, []string{"cache", cacheLine(s.Cache)})
	for _, one := range s.Registries {
		rows = append(rows, []string{"registry", registryLine(one, now)})
	}
	for _, one := range s.Sources {
		rows = append(rows, []string{"source", sourceLine(one)})
	}
	for _, job := range s.Jobs {
		rows = append(rows, []string{"job", job.Name + ": " + orNone(job.Leader)})
	}
	rows = append(rows, []string{"quarantine", fmt.Sprintf("%d keys", s.Quarantined)})
	if c := s.Certificates; c != nil {
		rows = append(rows, []string{"certificates", fmt.Sprintf("of the member until %s, of the authority until %s", c.Member.Format(time.RFC3339), c.Authority.Format(time.RFC3339))})
	}
	if s.Backup != nil {
		rows = append(rows, []string{"backup", backupLine(s.Backup, now)})
	}
	if err := cli.WriteTable(out, rows); err != nil {
		return err
	}
	if err := writeMembers(out, s.Store); err != nil {
		return err
	}
	for _, p := range s.Problems {
		fmt.Fprintf(out, "! %s\n", p)
	}
	return nil
}

func storeKind(s *maintenance.Status) string {
	if s.Server.Store == maintenance.Embedded {
		return "embedded, in " + s.Server.DataDir
	}
	return "external: an etcd that others look after"
}

func revisions(st *maintenance.StoreStatus) string {
	if st.Compacted == 0 {
		return fmt.Sprint(st.Revision)
	}
	return fmt.Sprintf("%d, compacted to %d", st.Revision, st.Compacted)
}

func sizes(st *maintenance.StoreStatus) string {
	text := fmt.Sprintf("%s, %s in use", cli.FormatMiB(st.DBBytes), cli.FormatMiB(st.DBInUseBytes))
	if st.QuotaBytes > 0 {
		text += fmt.Sprintf("; quota %s (%d %% used)", cli.FormatMiB(st.QuotaBytes), st.DBBytes*100/st.QuotaBytes)
	}
	if st.FreeBytes > 0 {
		text += fmt.Sprintf("; %s free on the disk", cli.FormatMiB(st.FreeBytes))
	}
	return text
}

func cacheLine(c maintenance.CacheStatus) string {
	return fmt.Sprintf("revision %d, %d objects, at most %s old", c.Revision, c.Objects,
		time.Duration(c.StalenessSeconds*float64(time.Second)).Round(100*time.Millisecond))
}

// registryLine says whether the served content of a registry is current.
func registryLine(r maintenance.RegistryStatus, now time.Time) string {
	services := cli.CountOf(r.Services, "service")
	switch discovery.SourceState(r.State) {
	case discovery.SourceSyncing:
		return r.Name + ": not read yet"
	case discovery.SourceLastKnown:
		return fmt.Sprintf("%s: as last known %s ago (%s), %s", r.Name, cli.Age(now, r.AsOf), r.AsOf.UTC().Format(time.RFC3339), services)
	}
	return fmt.Sprintf("%s: %s, %s", r.Name, r.State, services)
}

// sourceLine says whether a source is followed, and how much of it is refused; the problems say more.
func sourceLine(s maintenance.SourceStatus) string {
	state := "followed"
	if s.Problem != "" {
		state = "degraded"
	}
	line := fmt.Sprintf("%s: %s, %s", s.Name, state, cli.CountOf(s.Objects, "object"))
	if s.Refused > 0 {
		line += ", " + cli.CountOf(s.Refused, "fault")
	}
	return line
}

func backupLine(b *maintenance.BackupStatus, now time.Time) string {
	text := "none yet"
	if !b.Time.IsZero() {
		text = fmt.Sprintf("%s ago, revision %d, %s", cli.Age(now, b.Time), b.Revision, b.File)
	}
	if b.Error != "" {
		text += "; the last attempt failed"
	}
	return text
}

// writeMembers lists the members of a cluster of several.
func writeMembers(out io.Writer, st *maintenance.StoreStatus) error {
	if st == nil || len(st.Members) < 2 {
		return nil
	}
	rows := [][]string{{"MEMBER", "NAME", "ROLE", "VERSION", "SIZE", "INDEX", "STATE"}}
	for _, m := range st.Members {
		role, state, size, index := "follower", "ok", "", ""
		switch {
		case m.Leader:
			role = "leader"
		case m.Learner:
			role = "learner"
		}
		if m.Error != "" {
			state = m.Error
		} else {
			size, index = cli.FormatMiB(m.DBBytes), fmt.Sprint(m.Index)
		}
		rows = append(rows, []string{m.ID, m.Name, role, m.Version, size, index, state})
	}
	fmt.Fprintln(out)
	return cli.WriteTable(out, rows)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
