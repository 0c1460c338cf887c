package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
)

func newCertificateCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "certificate",
		Short: "Get the certificate of this machine from the mesh, and keep it fresh",
		Long: `Get the certificate of this machine from the mesh, and keep it fresh.

The key is made here. --out has cert-chain.pem, key.pem and root-cert.pem, which are
always of one certificate: they are replaced at once.`,
	}
	c.AddCommand(newCertificateRequestCommand(env), newCertificateRenewCommand(env))
	return c
}

// certificateFlags holds the flags of both commands.
type certificateFlags struct {
	out, hook string
	ttl       time.Duration
	watch     bool
}

func (o *certificateFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.out, "out", "", "directory of the files, made if missing; for this user alone")
	f.DurationVar(&o.ttl, "ttl", 0, "for how long a certificate is to be valid; 0 leaves it to the server")
	f.StringVar(&o.hook, "hook", "", "command that the shell runs after the files were replaced, with their directory in $PORTOLAN_OUT")
	f.BoolVar(&o.watch, "watch", false, "stay, and renew at two thirds of each certificate's life")
	_ = c.MarkFlagDirname("out")
}

func (o *certificateFlags) validate() error {
	switch {
	case o.out == "":
		return exit.With(exit.Usage, errors.New("--out is missing: name the directory of the files"))
	case o.ttl < 0:
		return exit.With(exit.Usage, fmt.Errorf("--ttl %s: give a time such as 24h", o.ttl))
	}
	return nil
}

func newCertificateRequestCommand(env *environment) *cobra.Command {
	var o certificateFlags
	c := &cobra.Command{
		Use:   "request --out DIR",
		Short: "Get a certificate by a token",
		Long: `Get a certificate by a token: a join token (portolan token create), or a JWT of an
issuer that the mesh trusts. With --watch the command stays and renews it; started
again, it goes on with the certificate that it finds, and needs no token. That holds
for some days after the certificate has expired, too (serve --renew-expired).`,
		Example: `  portolan certificate request --out /etc/portolan/web --server https://mesh.example.com:15080 --ca roots.pem --token-file web.token
  portolan certificate request --out /etc/portolan/web --token-file web.token --watch --hook 'systemctl reload web'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			held, err := enroll.Read(o.out)
			has := o.watch && err == nil
			var refused error
			if has && !env.Now().Before(held.Pair.Leaf.NotAfter) { // the server decides what an expired one is good for
				refused = env.enroll(c.Context(), &o, enroll.Renew)
				has = refused == nil
			}
			if !has {
				if err := env.enroll(c.Context(), &o, enroll.Request); err != nil {
					return errors.Join(refused, err)
				}
			}
			return env.watchCertificate(c.Context(), &o)
		},
	}
	o.register(c)
	return c
}

func newCertificateRenewCommand(env *environment) *cobra.Command {
	var o certificateFlags
	c := &cobra.Command{
		Use:   "renew --out DIR",
		Short: "Get the next certificate by the one that is there",
		Long: `Get the next certificate by the one that is there, while that is valid and for some
days after (serve --renew-expired). With --watch the command stays and renews at two
thirds of each certificate's life, the first time then, too.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if !o.watch {
				return env.enroll(c.Context(), &o, enroll.Renew)
			}
			return env.watchCertificate(c.Context(), &o)
		},
	}
	o.register(c)
	return c
}

// enroll gets a certificate, and prints which one.
func (e *environment) enroll(ctx context.Context, o *certificateFlags, get func(context.Context, enroll.Options) (certificate.Certificate, error)) error {
	if e.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.Timeout)
		defer cancel()
	}
	got, err := get(ctx, e.enrollment(o))
	if got.Identity != "" {
		fmt.Fprintf(e.Stdout, "%s has the certificate of %s, until %s.\n", o.out, got.Identity, got.NotAfter.UTC().Format(time.RFC3339))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Data, fmt.Errorf("%w: get a first certificate with a token (portolan certificate request)", err))
	}
	return e.ExplainTimeout(err)
}

// watchCertificate keeps renewing until ctx ends, if --watch is given.
func (e *environment) watchCertificate(ctx context.Context, o *certificateFlags) error {
	if !o.watch {
		return nil
	}
	return enroll.Watch(ctx, e.enrollment(o))
}

func (e *environment) enrollment(o *certificateFlags) enroll.Options {
	out := enroll.Options{
		Dir: o.out, TTL: o.ttl, Now: e.Now, Logger: slog.New(slog.NewTextHandler(e.Stderr, nil)),
		Ask: func(ctx context.Context, r certificate.Request, own *tls.Certificate) (certificate.Certificate, error) {
			return e.askCertificate(ctx, o, r, own)
		},
	}
	if o.hook != "" {
		out.Replaced = func(ctx context.Context) error { return e.runHook(ctx, o) }
	}
	return out
}

func (e *environment) askCertificate(ctx context.Context, o *certificateFlags, r certificate.Request, current *tls.Certificate) (got certificate.Certificate, err error) {
	e = &environment{e.Reaching(ctx)}
	files, token, pin := cli.ClientFiles{CA: e.Files.CA}, "", ""
	if current == nil {
		if token, err = e.Credentials.Bearer(); err != nil {
			return got, err
		}
		if token, pin = invitation.Unpin(token); token == "" {
			return got, exit.With(exit.Usage, errors.New("nothing says who this machine is: give a join token (portolan token create), or a JWT, by --token-file"))
		}
	} else {
		if !strings.HasPrefix(e.Server, "https://") {
			return got, exit.With(exit.Usage, fmt.Errorf("a certificate is renewed over https alone, and the server is %s: begin --server with https://", e.Server))
		}
		files.Cert, files.Key = filepath.Join(o.out, enroll.ChainFile), filepath.Join(o.out, enroll.KeyFile)
		if files.CA == "" {
			files.CA = filepath.Join(o.out, enroll.RootsFile)
		}
	}
	httpClient, err := files.Client(e.Server)
	if err != nil {
		return got, err
	}
	if current != nil {
		if err := enroll.Renewing(httpClient.Transport.(*http.Transport), o.out); err != nil {
			return got, err
		}
	}
	if httpClient == nil {
		httpClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if pin != "" && files.CA == "" && strings.HasPrefix(e.Server, "https://") {
		config, err := enroll.PinnedTrust(ctx, e.Server, pin, e.Agent())
		if err != nil {
			return got, err
		}
		httpClient.Transport.(*http.Transport).TLSClientConfig = config
	}
	api, err := client.New(e.Server, call.Options{
		HTTP: httpClient, Token: token, UserAgent: e.Agent(), Patience: e.Patience, Waiting: e.PrintWaiting,
	})
	if err != nil {
		return got, exit.With(exit.Usage, fmt.Errorf("--server: %w", err))
	}
	defer api.Close()
	if err = api.Post(ctx, certificate.Path, r, &got); join.Is(token) && apierrors.IsUnauthorized(err) {
		err = fmt.Errorf("%w: portolan token create makes one", err)
	}
	return got, e.CompareClocks(ctx, files, err)
}

func (e *environment) runHook(ctx context.Context, o *certificateFlags) error {
	command := exec.CommandContext(ctx, "sh", "-c", o.hook)
	command.Stdout, command.Stderr = e.Stderr, e.Stderr
	command.Env = append(os.Environ(), "PORTOLAN_OUT="+o.out)
	if err := command.Run(); err != nil {
		return fmt.Errorf("--hook: %w", err)
	}
	return nil
}
