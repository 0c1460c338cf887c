package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func newStoreSnapshotCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the whole store to a file, look into one, restore one",
		Long: `Save the whole store to a file while it serves, look into such a file, and make
the data directory of a server from one. The file has the configuration, its
history and all else that is in the etcd, as of one revision, and a hash of it.`,
	}
	c.AddCommand(newSnapshotSaveCommand(env), newSnapshotInspectCommand(env), newSnapshotRestoreCommand(env))
	return c
}

func newSnapshotSaveCommand(env *environment) *cobra.Command {
	force := false
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the store of a running server to a file",
		Long: `Save the store of a running server to a file, while it serves. The file appears
when it is whole, verified and on disk, or not at all, and has every change that
was acknowledged before. Only this user can read it: it holds all there is. It is
given to the user who runs the server alone, on the server's machine.

Of an etcd that others look after, the server's user there has to have the role
root for it, if etcd has users at all. --request-timeout is how long to wait for
each piece.`,
		Example: `  portolan store snapshot save mesh-$(date +%F).snapshot`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			summary, err := saveSnapshot(c.Context(), env, args[0], force)
			if errors.Is(err, fs.ErrExist) {
				return usageError{fmt.Errorf("%w: choose another name, or replace it with --force", err)}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stdout, "saved %s: revision %d, %d objects in %d keys, %s, sha256 %s\n",
				summary.File, summary.Revision, summary.Count(), summary.Keys, formatMiB(summary.Size), summary.Hash)
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	return c
}

func saveSnapshot(ctx context.Context, env *environment, file string, force bool) (summary *backup.Summary, err error) {
	if err := backup.Vacant(file, force); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = env.callFor(ctx, 0, func(ctx context.Context, c *client.Client) error {
		patience := newPatience(env.timeout, cancel)
		defer patience.end()
		snapshot, err := c.StoreSnapshot(ctx)
		if err != nil {
			return patience.explain(ctx, err)
		}
		defer func() { _ = snapshot.Body.Close() }()
		summary, err = backup.Write(patience.reader(snapshot.Body), file, backup.WriteOptions{
			Replace: force, MinRevision: snapshot.Revision, Schemas: schema.Pilot(),
		})
		return patience.explain(ctx, err)
	})
	return summary, err
}

// idleTimeout cancels a context when nothing has arrived for a while.
type idleTimeout struct {
	limit time.Duration // 0 means no limit
	timer *time.Timer
}

// errImpatient is the cause of such a cancellation.
var errImpatient = errors.New("nothing more has arrived")

func newPatience(limit time.Duration, cancel context.CancelCauseFunc) *idleTimeout {
	p := &idleTimeout{limit: limit}
	if limit > 0 {
		p.timer = time.AfterFunc(limit, func() { cancel(errImpatient) })
	}
	return p
}

func (p *idleTimeout) end() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// explain adds to an error which flag sets the limit.
func (p *idleTimeout) explain(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errImpatient) {
		return fmt.Errorf("the server sent nothing for %s (see --request-timeout): %w", p.limit, context.DeadlineExceeded)
	}
	return err
}

// reader restarts the limit with each piece that it reads.
func (p *idleTimeout) reader(from io.Reader) io.Reader {
	if p.timer == nil {
		return from
	}
	return readerFunc(func(b []byte) (int, error) {
		n, err := from.Read(b)
		if n > 0 {
			p.timer.Reset(p.limit)
		}
		return n, err
	})
}

// readerFunc implements io.Reader with a function.
type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func newSnapshotInspectCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "See what is in a snapshot, and whether it is whole",
		Long: `See what is in a snapshot: its revision, how many objects of which kind, how much
history. No server is asked. A file that was cut, changed or is something else is
refused, with exit code 65.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			summary, err := backup.Inspect(args[0], schema.Pilot())
			if err != nil {
				return dataError{err}
			}
			if output != "" {
				return writeDocument(env.stdout, output, summary)
			}
			return writeSummary(env.stdout, summary)
		},
	}
	registerOutput(c, &output, "", "json", "yaml")
	return c
}

// writeSummary prints the content of a snapshot for people.
func writeSummary(out io.Writer, s *backup.Summary) error {
	compacted := ""
	if s.Compacted > 0 {
		compacted = fmt.Sprintf(", compacted to %d", s.Compacted)
	}
	records := fmt.Sprintf("%d records", s.Records)
	if !s.First.IsZero() {
		records += fmt.Sprintf(", %s to %s", s.First.Format(time.RFC3339), s.Last.Format(time.RFC3339))
	}
	rows := [][]string{
		{"file", fmt.Sprintf("%s, %s", s.File, formatMiB(s.Size))},
		{"sha256", s.Hash + ", as its content has"},
		{"revision", fmt.Sprintf("%d%s", s.Revision, compacted)},
		{"format", formatLine(s)},
		{"instance", orNone(s.Instance)},
		{"keys", fmt.Sprint(s.Keys)},
		{"history", records},
		{"objects", fmt.Sprint(s.Count())},
	}
	for _, k := range s.Objects {
		count := fmt.Sprint(k.Count)
		if k.Unreadable > 0 {
			count += fmt.Sprintf(", of which %d cannot be read by this version", k.Unreadable)
		}
		rows = append(rows, []string{"  " + k.Kind + "." + k.Group, count})
	}
	for _, r := range s.Registries {
		rows = append(rows, []string{"last known of", r.Source + ", as of " + r.Confirmed.Format(time.RFC3339)})
	}
	if s.Other > 0 {
		rows = append(rows, []string{"others' keys", fmt.Sprint(s.Other)})
	}
	return writeTable(out, rows)
}

// formatLine says which versions wrote the content of a snapshot.
func formatLine(s *backup.Summary) string {
	text := fmt.Sprintf("storage format %d", s.Format)
	if s.Format > etcd.StorageFormat {
		text += fmt.Sprintf(" (this version has %d and cannot write to it)", etcd.StorageFormat)
	}
	if s.Etcd != "" {
		text += ", of etcd " + s.Etcd
	}
	return text
}

// restoreFlags are the flags of a restore.
type restoreFlags struct {
	member.RestoreOptions
	initial []string
}

func newSnapshotRestoreCommand(env *environment) *cobra.Command {
	o := restoreFlags{RestoreOptions: member.RestoreOptions{Schemas: schema.Pilot()}}
	c := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Make the data directory of a server from a snapshot",
		Long: `Make the data directory of a server that is not running from a snapshot. The
directory must not exist, or be empty; it appears whole or not at all. Then start
the server on it:

  portolan store snapshot restore mesh.snapshot --data-dir /var/lib/portolan
  portolan serve --data-dir /var/lib/portolan

The restored store is another than all before: its revisions begin 1,000,000,000
above that of the snapshot, and caches, proxies and whoever watches read all of
it anew, whatever they had.

For a store of several members run it on the machine of each, from the same file
and with the same --restore-id, with the --store-name and --store-initial-cluster
that its server is started with; then start all servers.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.File = args[0]
			if err := o.check(); err != nil {
				return usageError{err}
			}
			return restoreSnapshot(c.Context(), env, o.RestoreOptions)
		},
	}
	f := c.Flags()
	f.StringVar(&o.DataDir, "data-dir", "", "directory to restore to; it must not exist, or be empty")
	f.StringVar(&o.Name, "store-name", "", "name of this server's member of a store of several")
	f.StringSliceVar(&o.initial, "store-initial-cluster", nil, "members of the restored store, as NAME=PEER-URL, this one among them")
	f.StringVar(&o.Token, "restore-id", "", "any text that no restore had before, the same for all members of the store; for a store of one it is made up")
	_ = c.MarkFlagDirname("data-dir")
	return c
}

// check checks and parses the flags.
func (o *restoreFlags) check() error {
	if o.DataDir == "" {
		return errors.New("--data-dir: name the directory to restore to; it must not exist, or be empty")
	}
	if (o.Name == "") != (len(o.initial) == 0) {
		return errors.New("--store-name and --store-initial-cluster: give both, as the server is to be started with, or none for a store of one")
	}
	for _, text := range o.initial {
		name, url, ok := strings.Cut(text, "=")
		if err := errors.Join(cluster.CheckName(name), cluster.CheckURL(url)); !ok || err != nil {
			return fmt.Errorf("--store-initial-cluster: %q is not NAME=PEER-URL: %w", text, err)
		}
		o.Initial = append(o.Initial, member.Peer{Name: name, URL: strings.TrimSuffix(url, "/")})
	}
	if len(o.Initial) > 1 && o.Token == "" {
		return errors.New("--restore-id: give one text that no restore had before to each of the members, such as the date and time")
	}
	return nil
}

func restoreSnapshot(ctx context.Context, env *environment, o member.RestoreOptions) error {
	restored, err := member.Restore(ctx, o)
	if errors.Is(err, backup.ErrNoSnapshot) {
		return dataError{fmt.Errorf("nothing was restored: %w", err)}
	}
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	fmt.Fprintf(env.stdout, "restored %s: %d objects as of revision %d, which is now %d\n",
		o.DataDir, restored.Count(), restored.Summary.Revision, restored.Revision)
	return nil
}
