package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
)

func newStoreBackupCommand(env *environment) *cobra.Command {
	var o struct {
		lock  lockFlags
		force bool
	}
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save the whole store of a running server, and its keys, to a file",
		Long: `Save all that a server needs to a file, while it serves: the store with its
configuration and history, as of one revision; the sealing keys, without which
nobody can open the secrets of the store, such as the root of the mesh; and the
authority by which the members of the store know each other. The keys are wrapped
by a passphrase or by a file of random bytes that you name. Without that the
backup is refused, unless --without-keys leaves the keys out.

The file appears when it is whole, verified and on disk, or not at all, and has
every change that was acknowledged before. Only this user can read it. It is given
to the user who runs the server, on the server's machine, and to administrators of
the store.

Of an etcd that others look after, the server's user there has to have the role
root for it, if etcd has users at all. --request-timeout is how long to wait for
each piece.`,
		Example: `  (umask 077; openssl rand -hex 32 > backup.key)   # once; keep it apart from the backups
  portolan store backup mesh-$(date +%F).backup --key-file backup.key
  portolan store backup mesh-$(date +%F).backup --passphrase-file passphrase`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			lock, err := o.lock.lock(env, true)
			if err != nil {
				return err
			}
			summary, err := saveBackup(c.Context(), env, args[0], lock, o.force)
			if errors.Is(err, fs.ErrExist) {
				return exit.With(exit.Usage, fmt.Errorf("%w: choose another name, or replace it with --force", err))
			}
			if err != nil {
				return err
			}
			if lock == nil {
				env.Warn([]string{summary.File + ": " + missingWithoutKeys})
			}
			fmt.Fprintf(env.Stdout, "saved %s: revision %d, %d objects in %d keys, %s, %s, sha256 %s\n",
				summary.File, summary.Revision, summary.Count(), summary.Keys, cli.FormatMiB(summary.Size), keysLine(summary), summary.Hash)
			return nil
		},
	}
	c.Flags().BoolVar(&o.force, "force", false, "replace the file if it exists")
	o.lock.register(c.Flags())
	return c
}

// missingWithoutKeys says what a store lacks that was restored from a backup without keys.
const missingWithoutKeys = "without the keys nobody can open the secrets of the store, such as the root of the mesh: servers get no certificate, and all proxies need new ones, " +
	"unless you have a copy of sealing.key; and former members do not know the restored one"

// lockFlags name what wraps the keys of a backup.
type lockFlags struct {
	keyFile, passphraseFile string
	without                 bool
}

func (o *lockFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.keyFile, "key-file", "", "file of random bytes that wraps the keys in the backup, for this user alone; such as openssl rand -hex 32 makes")
	f.StringVar(&o.passphraseFile, "passphrase-file", "", "file with a passphrase that wraps the keys in the backup, for this user alone; at least 16 characters")
	f.BoolVar(&o.without, "without-keys", false, "leave the keys out")
}

// lock returns the lock that the flags name, nil for none. On a terminal it asks for a
// passphrase if no flag is given, twice for a new one.
func (o *lockFlags) lock(env *environment, fresh bool) (*escrow.Lock, error) {
	var lock escrow.Lock
	var err error
	switch given := o.keyFile != "" || o.passphraseFile != ""; {
	case o.without && given, o.keyFile != "" && o.passphraseFile != "":
		return nil, exit.With(exit.Usage, errors.New("--key-file, --passphrase-file, --without-keys: give one of them"))
	case o.without:
		return nil, nil
	case o.keyFile != "":
		if lock, err = escrow.KeyFile(o.keyFile); err != nil {
			err = fmt.Errorf("--key-file: %w", err)
		}
	case o.passphraseFile != "":
		if lock, err = escrow.PassphraseFile(o.passphraseFile); err != nil {
			err = fmt.Errorf("--passphrase-file: %w", err)
		}
	case env.Terminal:
		lock, err = askPassphrase(env, fresh)
	default:
		return nil, exit.With(exit.Usage, errors.New("name what wraps the keys in the backup, with --key-file or --passphrase-file; or leave them out with --without-keys: "+missingWithoutKeys))
	}
	if err != nil {
		return nil, exit.With(exit.Data, err)
	}
	return &lock, nil
}

// askPassphrase asks on the terminal.
func askPassphrase(env *environment, fresh bool) (escrow.Lock, error) {
	read := func(question string) (string, error) {
		fmt.Fprint(env.Stderr, question)
		text, err := term.ReadPassword(int(env.Stdin.(*os.File).Fd()))
		fmt.Fprintln(env.Stderr)
		return string(text), err
	}
	first, err := read("Passphrase of the backup: ")
	if err == nil && fresh {
		var again string
		if again, err = read("Again: "); err == nil && again != first {
			err = errors.New("the passphrases differ")
		}
	}
	if err != nil {
		return escrow.Lock{}, err
	}
	return escrow.Passphrase(first)
}

func keysLine(s *backup.Summary) string {
	if s.Envelope.HasKeys() {
		return "with the keys, wrapped"
	}
	return "without keys"
}

func saveBackup(ctx context.Context, env *environment, file string, lock *escrow.Lock, force bool) (summary *backup.Summary, err error) {
	if err := backup.Vacant(file, force); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = env.CallFor(ctx, 0, func(ctx context.Context, c *client.Client) error {
		patience := newPatience(c.Server(), env.Timeout, cancel)
		defer patience.end()
		envelope := escrow.WithoutKeys()
		if lock != nil {
			keys, err := remote.Server{Client: c}.StoreKeys(ctx)
			if err == nil {
				envelope, err = escrow.WithKeys(keys, *lock)
			}
			if err != nil {
				return patience.explain(ctx, err)
			}
		}
		told := env.Progress()
		defer told.Clear()
		told.Tell("waiting for the snapshot")
		snapshot, err := remote.Server{Client: c}.StoreSnapshot(ctx)
		if err != nil {
			return patience.explain(ctx, err)
		}
		defer func() { _ = snapshot.Body.Close() }()
		summary, err = backup.Write(telling(patience.reader(snapshot.Body), told), file, backup.WriteOptions{
			Envelope: envelope, Replace: force, MinRevision: snapshot.Revision, Schemas: schema.Pilot(),
		})
		return patience.explain(ctx, err)
	})
	return summary, err
}

// idleTimeout cancels a context when nothing has arrived for a while.
type idleTimeout struct {
	server string
	limit  time.Duration // 0 means no limit
	timer  *time.Timer
}

// errImpatient is the cause of such a cancellation.
var errImpatient = errors.New("nothing more has arrived")

func newPatience(server string, limit time.Duration, cancel context.CancelCauseFunc) *idleTimeout {
	p := &idleTimeout{server: server, limit: limit}
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
		return exit.With(exit.Unreachable, fmt.Errorf("the server at %s sent nothing for %s (see --request-timeout)", p.server, p.limit))
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

// telling tells how much of a backup was read.
func telling(from io.Reader, told *cli.Progress) io.Reader {
	size := int64(0)
	return readerFunc(func(b []byte) (int, error) {
		n, err := from.Read(b)
		before := size >> 20
		if size += int64(n); size>>20 != before || before == 0 {
			told.Tell("saved " + cli.FormatMiB(size))
		}
		return n, err
	})
}

// readerFunc implements io.Reader with a function.
type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Inspection is what store inspect tells. Its JSON form is an API.
type Inspection struct {
	metav1.TypeMeta `json:",inline"`
	*backup.Summary
}

func newStoreInspectCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "See what is in a backup, and whether it is whole",
		Long: `See what is in a backup: its revision, how many objects of which kind, how much
history, whether it has keys. No server is asked. A file that was cut, changed or
is something else is refused, with exit code 65. A snapshot of etcd's own tools is
a backup without keys.`,
		Example: `  portolan store inspect mesh.backup`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			summary, err := backup.Inspect(args[0], schema.Pilot())
			if err != nil {
				return exit.With(exit.Data, err)
			}
			if output != "" {
				return cli.WriteDocument(env.Stdout, output, Inspection{metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "BackupInspection"}, summary})
			}
			return writeSummary(env.Stdout, summary)
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// writeSummary prints the content of a backup for people.
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
		{"file", fmt.Sprintf("%s, %s", s.File, cli.FormatMiB(s.Size))},
		{"sha256", s.Hash + ", as its content has"},
		{"revision", fmt.Sprintf("%d%s", s.Revision, compacted)},
		{"format", formatLine(s)},
		{"other keys", keysLine(s)},
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
	return cli.WriteTable(out, rows)
}

// formatLine says which versions wrote the content of a backup.
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

type restoreFlags struct {
	member.RestoreOptions
	initial []string
	locked  lockFlags
}

func newStoreRestoreCommand(env *environment) *cobra.Command {
	o := restoreFlags{RestoreOptions: member.RestoreOptions{Schemas: schema.Pilot()}}
	c := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Make the data directory of a server from a backup",
		Long: `Make the data directory of a server that is not running from a backup, keys and
all. The directory must not exist, or be empty; it appears whole or not at all.
Then start the server on it, with the flags that it always had.

The restored store is another than all before: its revisions begin 1,000,000,000
above that of the backup, and caches, proxies and whoever watches read all of it
anew, whatever they had. Members of the former store do not join it.

It is a store of one, and others join it as they join any. A snapshot of etcd's
own tools has no keys: say --without-keys. Where the members of a store start all
at once, with certificates of your own, run it on the machine of each, from the
same file and with the same --restore-id, with the --store-name and
--store-initial-cluster that its server is started with; then start all servers.`,
		Example: `  portolan store restore mesh.backup --data-dir /var/lib/portolan/store --key-file backup.key`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.File = args[0]
			if err := o.check(); err != nil {
				return exit.With(exit.Usage, err)
			}
			return o.restore(c.Context(), env)
		},
	}
	f := c.Flags()
	f.StringVar(&o.DataDir, "data-dir", "", "directory to restore to; it must not exist, or be empty")
	f.StringVar(&o.Name, "store-name", "", "name of this server's member of a store whose members start all at once")
	f.StringSliceVar(&o.initial, "store-initial-cluster", nil, "members of such a store, as NAME=PEER-URL, this one among them")
	f.StringVar(&o.Token, "restore-id", "", "any text that no restore had before, the same for all members of such a store; for a store of one it is made up")
	o.locked.register(f)
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

// keys returns nil where the keys are left out.
func (o *restoreFlags) keys(env *environment) (*escrow.Keys, error) {
	summary, err := backup.Inspect(o.File, schema.Pilot())
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("nothing was restored: %w", err))
	}
	if !summary.Envelope.HasKeys() && !o.locked.without {
		return nil, exit.With(exit.Usage, fmt.Errorf("nothing was restored: %s has no keys: say --without-keys, and what will be missing: %s", o.File, missingWithoutKeys))
	}
	lock, err := o.locked.lock(env, false)
	if err != nil || lock == nil {
		return nil, err
	}
	keys, err := summary.Envelope.Open(*lock)
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("nothing was restored: %s: %w", o.File, err))
	}
	return &keys, nil
}

func keep(keys *escrow.Keys, dataDir string) error {
	if len(keys.SealingKeys) > 0 {
		if err := seal.AddTo(filepath.Join(dataDir, serve.SealingFile), keys.SealingKeys); err != nil {
			return err
		}
	}
	if len(keys.Authority) == 0 {
		return nil
	}
	return peercert.In(dataDir).Restore(keys.Authority, keys.AuthorityKey)
}

func (o *restoreFlags) restore(ctx context.Context, env *environment) error {
	keys, err := o.keys(env)
	if err != nil {
		return err
	}
	if keys != nil {
		o.Keep = func(dataDir string) error { return keep(keys, dataDir) }
	}
	restored, err := member.Restore(ctx, o.RestoreOptions)
	if errors.Is(err, backup.ErrNoSnapshot) {
		return exit.With(exit.Data, fmt.Errorf("nothing was restored: %w", err))
	}
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	if keys == nil {
		env.Warn([]string{o.DataDir + ": " + missingWithoutKeys})
	}
	if open := restored.OpenTokens; len(open) > 0 {
		env.Warn([]string{"these join tokens count as unused in the backup, and may have been used since: revoke those that were, or whoever has one can use it again: " +
			"portolan token revoke: " + strings.Join(open, ", ")})
	}
	fmt.Fprintf(env.Stdout, "restored %s: %d objects as of revision %d, which is now %d, %s\n",
		o.DataDir, restored.Count(), restored.Summary.Revision, restored.Revision, keysLine(restored.Summary))
	return nil
}
