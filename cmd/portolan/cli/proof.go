package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
)

// Proof proves to the server who the user of a command is.
type Proof struct {
	token, tokenFile string
	Flags            *pflag.FlagSet
	session          *session // the login of the context, nil for none
	Once             string   // a token to try instead of all others
}

// The help does not show the values of the flags as defaults.
func (o *Proof) register(f *pflag.FlagSet) {
	o.Flags = f
	f.StringVar(&o.token, "token", "", "bearer token of the user; the default is $PORTOLAN_TOKEN where it is set. Other users of this machine may see the arguments of a program: prefer --token-file")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token of the user; the default is $PORTOLAN_TOKEN_FILE where it is set")
}

// HasToken says whether the command line has a token.
func (o *Proof) HasToken() bool {
	return o.Flags != nil && (o.Flags.Changed("token") || o.Flags.Changed("token-file"))
}

// Bearer returns the token to send, empty for none: that of a flag, else of the environment,
// else of the context.
func (o *Proof) Bearer() (string, error) {
	if o.Flags == nil {
		return o.Once, nil
	}
	byFlag, byFile := o.Flags.Changed("token"), o.Flags.Changed("token-file")
	if byFlag && byFile {
		return "", exit.With(exit.Usage, errors.New("--token and --token-file: give one of the two"))
	}
	for _, from := range []struct {
		given       bool
		token, file string
	}{
		{byFlag, o.token, ""},
		{byFile, "", o.tokenFile},
		{os.Getenv("PORTOLAN_TOKEN") != "", os.Getenv("PORTOLAN_TOKEN"), ""},
		{os.Getenv("PORTOLAN_TOKEN_FILE") != "", "", os.Getenv("PORTOLAN_TOKEN_FILE")},
		{o.token != "", o.token, ""},
		{o.tokenFile != "", "", o.tokenFile},
	} {
		if from.given {
			return readToken(from.token, from.file)
		}
	}
	return "", nil
}

// explain adds to the error of a server that refuses the token what sort of token it is, or
// where it came from if the command line does not show that.
func (o *Proof) explain(err error) error {
	token, failed := o.Bearer()
	switch {
	case failed != nil || token == "":
		return err
	case strings.HasPrefix(token, join.Prefix):
		return fmt.Errorf("%w (this is a join token, which is for portolan certificate request)", err)
	case strings.HasPrefix(token, join.MemberPrefix):
		return fmt.Errorf("%w (this is the token of a server that joins the store, which is for serve --join)", err)
	case o.Flags == nil || o.Flags.Changed("token") || o.Flags.Changed("token-file"):
		return err
	case os.Getenv("PORTOLAN_TOKEN") != "" || os.Getenv("PORTOLAN_TOKEN_FILE") != "":
		return fmt.Errorf("%w (it is that of PORTOLAN_TOKEN or PORTOLAN_TOKEN_FILE; on the machine of the server, its user needs none)", err)
	}
	return fmt.Errorf("%w (it is that of the context; portolan logout forgets it: on the machine of the server, its user needs none)", err)
}

// Source returns the function that gets a token for each call, if that is the login of the
// context. It returns nil if anything else says who the user is.
func (o *Proof) Source() func(ctx context.Context, refused string) (string, error) {
	if o.session == nil || o.token != "" || o.tokenFile != "" || os.Getenv("PORTOLAN_TOKEN") != "" || os.Getenv("PORTOLAN_TOKEN_FILE") != "" {
		return nil
	}
	return o.session.token
}

// readToken returns the token, or the content of the file if one is given.
func readToken(token, file string) (string, error) {
	if file != "" {
		text, err := ReadFile(file)
		if err != nil {
			return "", exit.With(exit.Data, fmt.Errorf("--token-file: %w", err))
		}
		token = string(text)
	}
	token = strings.TrimSpace(token)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		where := "the token"
		if file != "" {
			where = "--token-file: " + file
		}
		return "", exit.With(exit.Data, fmt.Errorf("%s is empty, or not one word of text: take what portolan user create or user token add printed", where))
	}
	return token, nil
}
