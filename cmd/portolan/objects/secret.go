package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
)

func newSecretCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "secret",
		Short: "Store certificates with their keys, and look after what seals them",
		Long: `Store certificates with their keys, and look after what seals them.

A Secret is that of Kubernetes. Its data is sealed before it is stored, and no answer of
the server has it but that to portolan secret read, which the user who runs the server
alone can ask. The history, exports and backups do not have it in the clear, either.`,
	}
	c.AddCommand(newSecretTLSCommand(env), newSecretGenericCommand(env), newSecretListCommand(env), newSecretReadCommand(env),
		newSecretStatusCommand(env), newSecretKeyCommand(env), newSecretResealCommand(env))
	return c
}

// secretWrite stores a secret from files.
type secretWrite struct {
	writeFlags
	namespace string
}

func (o *secretWrite) register(c *cobra.Command, env *environment) {
	o.writeFlags.register(c)
	c.Flags().StringVarP(&o.namespace, "namespace", "n", env.Namespace, "namespace of the secret")
}

// files maps the name of each entry to its file.
func (o *secretWrite) run(c *cobra.Command, env *environment, name, kind string, files map[string]string) error {
	if err := o.check(c); err != nil {
		return err
	}
	spec := &secret.Spec{Type: kind, Data: map[string][]byte{}}
	var unread *multierror.Error
	for _, entry := range slices.Sorted(maps.Keys(files)) {
		content, err := cli.ReadFile(files[entry])
		if err != nil {
			unread = multierror.Append(unread, err)
		}
		spec.Data[entry] = content
	}
	if err := unread.ErrorOrNil(); err != nil {
		return exit.With(exit.Data, err)
	}
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Secret, Namespace: o.namespace, Name: name}, Spec: spec}
	m := &manifest{schemas: env.Schemas, documents: []config.Document{{Source: fileNames(files), Config: object}}}
	m.validate()
	if err := m.err("stored"); err != nil {
		return err
	}
	if o.dry.mode == dryRunClient {
		return o.reportValid(env, m)
	}
	var result *batch.Result
	err := env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
		stored, err := api.Get(ctx, client.Resource(env.Schemas.Kind(schema.Secret)), o.namespace, name)
		switch {
		case err == nil: // replace only the data
			object.Labels, object.Annotations = stored.GetLabels(), stored.GetAnnotations()
		case !apierrors.IsNotFound(err):
			return err
		}
		operations, err := m.operations(batch.Apply)
		if err != nil {
			return err
		}
		result, err = o.send(ctx, env, api, o.why.about(operations), cli.CountOf(len(operations), "object"))
		return err
	})
	if err != nil {
		return cli.Refused(err, "stored", m.documents)
	}
	if err := o.report(env, m.documents, result, nil); err != nil {
		return err
	}
	return o.await(c.Context(), env, result)
}

// fileNames returns the names of the files, each once, in the order of their entries.
func fileNames(files map[string]string) string {
	var out []string
	for _, entry := range slices.Sorted(maps.Keys(files)) {
		if !slices.Contains(out, files[entry]) {
			out = append(out, files[entry])
		}
	}
	return strings.Join(out, ", ")
}

func newSecretTLSCommand(env *environment) *cobra.Command {
	var o secretWrite
	var cert, key, authority, revoked string
	c := &cobra.Command{
		Use:   "tls NAME --cert FILE --key FILE [--ca FILE] [--crl FILE]",
		Short: "Store a certificate with its key, or replace them",
		Long: `Store a certificate with its private key, or replace them. The files are PEM. The
first certificate of --cert is that of the key, its chain follows. --ca has the
authorities that sign the certificates of clients, --crl what they have revoked.

A pair that does not match, a key with a passphrase and what is no certificate are
refused. The secret is replaced as a whole: leave out --ca or --crl, and what it had of
them is gone.

These flags are about the secret. Your own certificate and the authority of the server
come from PORTOLAN_CERT, PORTOLAN_KEY and PORTOLAN_CA here, or from a context (portolan
config).` + waitHelp,
		Example: `  portolan secret tls shop-cert -n ingress --cert fullchain.pem --key privkey.pem
  portolan secret tls shop-cert -n ingress --cert fullchain.pem --key privkey.pem --ca clients.pem`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.Secret, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if cert == "" || key == "" {
				return exit.With(exit.Usage, errors.New("name both files: --cert FILE with the certificate, --key FILE with its private key"))
			}
			files := map[string]string{secret.TLSCert: cert, secret.TLSKey: key}
			if authority != "" {
				files[secret.TLSAuthority] = authority
			}
			if revoked != "" {
				files[secret.TLSRevoked] = revoked
			}
			return o.run(c, env, args[0], secret.TLS, files)
		},
	}
	o.register(c, env)
	f := c.Flags()
	f.StringVar(&cert, "cert", "", "file with the certificate and its chain, in PEM")
	f.StringVar(&key, "key", "", "file with the private key of the certificate, in PEM")
	f.StringVar(&authority, "ca", "", "file with the authorities of client certificates, in PEM")
	f.StringVar(&revoked, "crl", "", "file with the revocation list of the authorities, in PEM")
	return c
}

func newSecretGenericCommand(env *environment) *cobra.Command {
	var o secretWrite
	var from []string
	c := &cobra.Command{
		Use:     "generic NAME --from-file ENTRY=FILE...",
		Short:   "Store files as a secret, or replace it",
		Long:    `Store files as a secret of type Opaque, or replace it: an entry for each --from-file.` + waitHelp,
		Example: `  portolan secret generic clients -n ingress --from-file cacert=ca.pem`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.Secret, 1),
		RunE: func(c *cobra.Command, args []string) error {
			files := map[string]string{}
			for _, one := range from {
				entry, file, ok := strings.Cut(one, "=")
				if _, twice := files[entry]; !ok || entry == "" || file == "" || twice {
					return exit.With(exit.Usage, fmt.Errorf("--from-file %s: give ENTRY=FILE, each entry once", one))
				}
				files[entry] = file
			}
			if len(files) == 0 {
				return exit.With(exit.Usage, errors.New("--from-file is missing: give ENTRY=FILE for each entry"))
			}
			return o.run(c, env, args[0], secret.Opaque, files)
		},
	}
	o.register(c, env)
	c.Flags().StringArrayVar(&from, "from-file", nil, "ENTRY=FILE: the file that an entry has the content of")
	return c
}

func newSecretListCommand(env *environment) *cobra.Command {
	namespace, all, output := "", false, ""
	c := &cobra.Command{
		Use:   "list",
		Short: "List secrets, with what their certificates say",
		Long: `List secrets, with what their certificates say: for whom they are, who has signed
them and when they end. The data is not shown.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				if all {
					namespace = ""
				}
				where := "."
				if namespace != "" {
					where = fmt.Sprintf(" in namespace %s; -A looks in all.", namespace)
				}
				return env.List(ctx, api, namespace, output, cli.Listing{
					Kind: schema.Secret, Head: []string{"NAMESPACE", "NAME", "TYPE", "ENTRY", "SUBJECT", "NAMES", "ISSUER", "ENDS"}, None: "No secrets found" + where,
					Rows: func(item *unstructured.Unstructured) ([][]string, error) {
						spec := &secret.Spec{}
						if err := runtime.DefaultUnstructuredConverter.FromUnstructured(config.Content(item.Object), spec); err != nil {
							return nil, err
						}
						return secretRows(env, item.GetNamespace(), item.GetName(), spec), nil
					},
				})
			})
		},
	}
	f := c.Flags()
	f.StringVarP(&namespace, "namespace", "n", env.Namespace, "namespace of the secrets")
	f.BoolVarP(&all, "all-namespaces", "A", false, "list those of all namespaces")
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// secretRows returns a row for each certificate of a secret, and for each entry without one.
func secretRows(env *environment, namespace, name string, spec *secret.Spec) (rows [][]string) {
	row := func(cells ...string) { rows = append(rows, append([]string{namespace, name, spec.Type}, cells...)) }
	if spec.Sealed == nil {
		return nil
	}
	for _, entry := range spec.Sealed.Entries {
		found := false
		for _, c := range spec.Sealed.Certificates {
			if c.Entry != entry.Name {
				continue
			}
			found = true
			ends := "in " + cli.Age(c.NotAfter, env.Now())
			if left := c.NotAfter.Sub(env.Now()); left <= 0 {
				ends = "ENDED " + cli.Age(env.Now(), c.NotAfter) + " ago"
			}
			row(entry.Name, c.Subject, cli.FormatList(c.Names, false), c.Issuer, ends)
		}
		if !found {
			row(entry.Name, fmt.Sprintf("(%d bytes)", entry.Bytes), "", "", "")
		}
	}
	return rows
}

func newSecretReadCommand(env *environment) *cobra.Command {
	namespace := ""
	c := &cobra.Command{
		Use:   "read NAME ENTRY",
		Short: "Print an entry of a secret in the clear",
		Long: `Print an entry of a secret in the clear. The server answers the user who runs it
alone, on its own machine.`,
		Example: `  portolan secret read shop-cert tls.crt -n ingress`,
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.Secret, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				data, err := remote.Server{Client: api}.SecretData(ctx, namespace, args[0])
				if err != nil {
					return err
				}
				has := cmp.Or(strings.Join(slices.Sorted(maps.Keys(data)), ", "), "none")
				if len(args) == 1 {
					return exit.With(exit.Usage, fmt.Errorf("name the entry: secret/%s/%s has %s", namespace, args[0], has))
				}
				content, ok := data[args[1]]
				if !ok {
					return exit.With(exit.Data, fmt.Errorf("secret/%s/%s has no entry %s: it has %s", namespace, args[0], args[1], has))
				}
				_, err = env.Stdout.Write(content)
				return err
			})
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", env.Namespace, "namespace of the secret")
	return c
}

func newSecretStatusCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "status",
		Short: "See with which keys secrets are sealed, and which the server lacks",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				s, err := remote.Server{Client: api}.SealingStatus(ctx)
				if err != nil {
					return err
				}
				if output != "" {
					return cli.WriteDocument(env.Stdout, output, s)
				}
				rows := [][]string{
					{"seals", cmp.Or(s.Key, "none yet: the first secret makes a key")},
					{"file", cmp.Or(s.File, "none: secrets are refused without --sealing-key")},
				}
				ids := slices.Concat(s.Keys, slices.Collect(maps.Keys(s.Secrets)))
				slices.Sort(ids)
				for _, id := range slices.Compact(ids) {
					here := "here"
					if !slices.Contains(s.Keys, id) {
						here = "not here: import it, portolan secret key import"
					}
					rows = append(rows, []string{"key " + id, fmt.Sprintf("%s, %s", cli.CountOf(s.Secrets[id], "secret"), here)})
				}
				if s.Problem != "" {
					rows = append(rows, []string{"problem", s.Problem})
				}
				for _, one := range s.Unopened {
					rows = append(rows, []string{"not opened", one})
				}
				return cli.WriteTable(env.Stdout, rows)
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

func newSecretKeyCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "Hand sealing keys to another server, and make new ones",
		Long: `Hand sealing keys to another server of the store, and make new ones. The server
answers the user who runs it alone, on its own machine.

To replace the key that seals: add one to one server, hand it to the others with export
and import, and then run portolan secret reseal.`,
	}
	c.AddCommand(
		&cobra.Command{
			Use:   "add",
			Short: "Make a new sealing key, which opens but does not seal yet",
			Args:  cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
					return env.tellAdded(remote.Server{Client: api}.AddSealingKeys(ctx, ""))
				})
			},
		},
		&cobra.Command{
			Use:     "export",
			Short:   "Print the sealing keys of the server: whoever has them can open all secrets",
			Example: `  (umask 077; portolan secret key export > sealing.key)`,
			Args:    cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
					text, err := remote.Server{Client: api}.SealingKeys(ctx)
					if err != nil {
						return err
					}
					if !strings.Contains(text, "portolan-sealing-key") {
						return errors.New("the server has no sealing key: the first secret makes one, or portolan secret key add")
					}
					_, err = fmt.Fprint(env.Stdout, text)
					return err
				})
			},
		},
		&cobra.Command{
			Use:     "import FILE",
			Short:   "Give the server sealing keys that another exported",
			Example: `  portolan secret key import sealing.key`,
			Args:    cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				text, err := cli.ReadFile(args[0])
				if err != nil {
					return exit.With(exit.Data, err)
				}
				if len(text) == 0 {
					return exit.With(exit.Data, fmt.Errorf("%s is empty", args[0]))
				}
				return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
					return env.tellAdded(remote.Server{Client: api}.AddSealingKeys(ctx, string(text)))
				})
			},
		},
	)
	return c
}

// tellAdded prints which sealing keys are new to the server.
func (e *environment) tellAdded(added []string, err error) error {
	if err != nil {
		return err
	}
	if len(added) == 0 {
		_, err = fmt.Fprintln(e.Stdout, "the server had them all")
		return err
	}
	for _, id := range added {
		fmt.Fprintf(e.Stdout, "sealing key %s added\n", id)
	}
	return nil
}

func newSecretResealCommand(env *environment) *cobra.Command {
	key, lost := "", false
	c := &cobra.Command{
		Use:   "reseal",
		Short: "Have another key seal, and seal all secrets anew with it",
		Long: `Have another key of the server seal, and seal all secrets anew with it: that which --key
names, else the one that the server got last. A server of the store that does not have it cannot open them: hand
it over first (portolan secret key export, import). It may be run again at any time; what
is sealed with the key already stays as it is.

Where no server has the key that seals now, and no copy of its file is left, what it has
sealed is lost. --lost gives it up: make a key (portolan secret key add), reseal with
--lost, and store the secrets again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.CallFor(c.Context(), 0, func(ctx context.Context, api *client.Client) error {
				done, err := remote.Server{Client: api}.Reseal(ctx, key, lost)
				if err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "sealing key %s seals now; %s sealed anew\n", done.Key, cli.CountOf(done.Resealed, "secret"))
				if len(done.Left) > 0 {
					remedy := ""
					if lost {
						remedy = ": store those again whose key is lost"
					}
					return fmt.Errorf("%s not sealed anew: %s%s", cli.CountOf(len(done.Left), "secret"), strings.Join(done.Left, "; "), remedy)
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&key, "key", "", "id of the key (default the one that this server got last, made or imported)")
	c.Flags().BoolVar(&lost, "lost", false, "give up the key that seals now: no server has it")
	return c
}
