package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/contexts"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/login"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/discovery/access"
)

func newLoginCommand(env *environment) *cobra.Command {
	provider := ""
	c := &cobra.Command{
		Use:   "login [--provider NAME | --token-file FILE]",
		Short: "Log in to the server, with a provider that it names or with a token",
		Long: `Log in to the server, with a provider that it names or with a token. Log in only to a
server that you know.

The server names its providers, which are TokenIssuers with users.login. You are shown a
URL and a code, to be opened in a browser on any machine. Where there are several
providers, --provider names one. With --token or --token-file nobody is asked: the token
is tried, and kept.

The context in use keeps who you are, in a file that only you may read: the one of
--context, which is made if there is none of that name, or else the current one. If there
is none, it is made by the name of the server. A login is renewed by itself until the
provider ends it. portolan logout forgets it.`,
		Example: `  portolan login
  portolan login --context prod --server https://mesh.example:15080 --ca mesh.pem
  portolan login --token-file alice.token`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range []string{"token", "token-file"} {
				if cli.ByVariable(name) {
					return exit.With(exit.Usage, fmt.Errorf("%s is set, and goes before what a context keeps: unset it first", cli.Variable(name)))
				}
			}
			target, err := env.loginContext(c)
			if err != nil {
				return err
			}
			if env.Credentials.HasToken() {
				if provider != "" {
					return exit.With(exit.Usage, errors.New("--provider is with whom to log in, and a token needs nobody: leave one of them out"))
				}
				return env.loginByToken(c.Context(), target)
			}
			return env.loginWith(c.Context(), target, provider)
		},
	}
	c.Flags().StringVar(&provider, "provider", "", "TokenIssuer with which to log in, where the server has several")
	return c
}

// loginContext returns the name of the context that will keep a login, and applies its
// settings. The context may not exist yet.
func (e *environment) loginContext(c *cobra.Command) (string, error) {
	file, err := e.Contexts()
	if err != nil {
		return "", err
	}
	name := e.ContextName()
	one, known := file.Find(cmp.Or(name, file.Current))
	if known {
		if err := e.UseContext(c); err != nil {
			return "", err
		}
		if name == "" && one.Server != "" && !cli.Among(e.Server, one.Server) {
			return "", exit.With(exit.Usage, fmt.Errorf("the current context %s is of another server, %s: name one for %s with --context, which is made if there is none of that name", one.Name, one.Server, e.Server))
		}
		return one.Name, nil
	}
	if name == "" {
		first, _, _ := strings.Cut(e.Server, ",")
		_, host, _ := strings.Cut(first, "://")
		name = cmp.Or(strings.TrimRight(host, "/"), first)
	}
	return name, nil
}

// loginByToken stores the given token, if the server accepts it.
func (e *environment) loginByToken(ctx context.Context, target string) error {
	token, err := e.Credentials.Bearer()
	if err != nil {
		return err
	}
	return e.keepLogin(ctx, target, token, nil)
}

// loginWith logs in with a provider that the server names.
func (e *environment) loginWith(ctx context.Context, target, name string) error {
	e.Credentials = cli.Proof{} // login needs no credentials, and replaces those there are
	var known credentials.LoginList
	if err := e.Call(ctx, func(ctx context.Context, api *client.Client) error {
		return api.JSON(ctx, credentials.LoginPath, &known)
	}); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the server at %s does not say how to log in: it is older than this command; give a token (--token-file)", e.Server)
		}
		return err
	}
	provider, err := chooseProvider(known.Providers, name, e.Server)
	if err != nil {
		return err
	}
	oauth := login.Client{Issuer: provider.Issuer, ID: provider.ClientID, CA: provider.CA, Scopes: provider.Scopes}
	device, err := login.Start(ctx, oauth)
	if err != nil {
		return err
	}
	defer device.Close()
	e.showDevice(device, provider.Issuer)
	tokens, err := device.Wait(ctx, func(err error) { fmt.Fprintf(e.Stderr, "%v, which happens by itself until the code ends.\n", err) })
	if err != nil {
		return err
	}
	return e.keepLogin(ctx, target, tokens.ID, &contexts.Login{
		Server: e.Server, Issuer: oauth.Issuer, ClientID: oauth.ID, CA: oauth.CA, IDToken: tokens.ID, RefreshToken: tokens.Refresh,
	})
}

// chooseProvider returns the provider of a name, or the only one.
func chooseProvider(known []credentials.Provider, name, server string) (credentials.Provider, error) {
	names := make([]string, len(known))
	for i, one := range known {
		if one.Name == name || name == "" && len(known) == 1 {
			return one, nil
		}
		names[i] = cli.Plain(one.Name)
	}
	switch {
	case len(known) == 0:
		return credentials.Provider{}, exit.With(exit.Data, fmt.Errorf("no provider logs users in at %s: an administrator can give a TokenIssuer users.login; or log in with a token (--token-file)", server))
	case name == "":
		return credentials.Provider{}, exit.With(exit.Usage, fmt.Errorf("the server has several providers: name one of %s with --provider", strings.Join(names, ", ")))
	}
	return credentials.Provider{}, exit.With(exit.Usage, fmt.Errorf("--provider %s: the server has %s", name, strings.Join(names, ", ")))
}

// showDevice shows the user where to go. It is not part of the command's output.
func (e *environment) showDevice(d *login.Device, issuer string) {
	how := "and enter the code"
	if d.Complete {
		how = "and see that it shows the code"
	}
	fmt.Fprintf(e.Stderr, "To log in to %s with %s, open\n\n    %s\n\nin a browser %s\n\n    %s\n\nIt is good until %s. Waiting for you.\n",
		e.Server, cli.Plain(issuer), d.URL, how, d.Code, d.Until.Local().Format(time.TimeOnly))
}

// keepLogin stores a token or a login in a context, if the server accepts it.
func (e *environment) keepLogin(ctx context.Context, target, token string, l *contexts.Login) error {
	mine := &environment{e.With(func(e *cli.Environment) { e.Credentials = cli.Proof{Once: token} })}
	var self *credentials.Self
	err := mine.Call(ctx, func(ctx context.Context, api *client.Client) (err error) {
		self, err = mine.self(ctx, api)
		return err
	})
	switch {
	case apierrors.IsUnauthorized(err) && l != nil:
		return fmt.Errorf("%s has let you in, and the server at %s does not (its log says why): %w", cli.Plain(l.Issuer), e.Server, err)
	case err != nil:
		return err
	}
	authorities, err := absolute(e.Files.CA)
	if err != nil {
		return err
	}
	err = contexts.Update(ctx, cli.ContextsFile(), func(file contexts.File) (contexts.File, bool, error) {
		one, _ := file.Find(target)
		if one.Server != "" && !cli.Among(e.Server, one.Server) {
			one = contexts.Context{Namespace: one.Namespace} // the other settings were for the other server
		}
		one.Name, one.Server, one.CA, one.Login, one.Token, one.TokenFile = target, e.Server, authorities, l, token, ""
		if l != nil {
			one.Token = ""
		}
		if file.Current == "" {
			file.Current = target
		}
		return file.With(one), true, nil
	})
	if err != nil {
		return asData(err)
	}
	fmt.Fprintf(e.Stdout, "You are %s at %s, by the context %s.\n", cli.Plain(self.User), e.Server, target)
	if len(self.Grants) == 0 {
		fmt.Fprintln(e.Stderr, "You have no rights yet: no role is bound to you or to a group of yours. See portolan auth whoami.")
	}
	return nil
}

func newLogoutCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget who you are to the server",
		Long: `Forget who you are to the server: the login or the token that the context in use keeps. The
provider is told that the login is over, if it takes that. A token of the server itself stays
valid until it ends or is revoked (portolan user token revoke).`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			file, err := env.Contexts()
			if err != nil {
				return err
			}
			name := cmp.Or(env.ContextName(), file.Current)
			if name == "" {
				return exit.With(exit.Data, errors.New("no context is in use, which would keep a login: name one with --context"))
			}
			var was contexts.Context
			err = contexts.Update(c.Context(), cli.ContextsFile(), func(file contexts.File) (contexts.File, bool, error) {
				if was, err = cli.FindContext(file, name); err != nil {
					return file, false, err
				}
				next := was
				next.Login, next.Token, next.TokenFile = nil, "", ""
				return file.With(next), next != was, nil
			})
			if err != nil {
				return asData(err)
			}
			if was.Login == nil && was.Token == "" && was.TokenFile == "" {
				_, err := fmt.Fprintf(env.Stdout, "The context %s keeps no login.\n", name)
				return err
			}
			fmt.Fprintf(env.Stdout, "The context %s has forgotten who you are.\n", name)
			switch {
			case was.Login != nil:
				env.revokeLogin(c.Context(), was.Login)
			case strings.HasPrefix(was.Token, access.TokenPrefix), was.TokenFile != "":
				fmt.Fprintln(env.Stderr, "The token itself stays valid: portolan user token revoke ends it.")
			}
			return nil
		},
	}
}

// revokeLogin tells the provider that a login is over.
func (e *environment) revokeLogin(ctx context.Context, l *contexts.Login) {
	if l.RefreshToken == "" {
		return
	}
	if told, err := login.Revoke(ctx, cli.ClientOf(l), l.RefreshToken); err != nil {
		fmt.Fprintf(e.Stderr, "The provider was not told that the login is over, and ends it in its own time: %v\n", err)
	} else if !told {
		fmt.Fprintf(e.Stderr, "The provider %s cannot be told that the login is over, and ends it in its own time.\n", cli.Plain(l.Issuer))
	}
}
