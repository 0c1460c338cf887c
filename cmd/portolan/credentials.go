package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// credentials are what a command proves to the server who its user is with.
type credentials struct {
	token, tokenFile string
	flags            *pflag.FlagSet
	session          *session // of the context, nil for none
	once             string   // a token to be tried in place of all that
}

// register adds the flags. Their values are not shown as defaults of the help.
func (o *credentials) register(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.token, "token", "", "bearer token of the user; the default is $PORTOLAN_TOKEN where it is set. Other users of this machine may see the arguments of a program: prefer --token-file")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token of the user; the default is $PORTOLAN_TOKEN_FILE where it is set")
}

// bearer is the token to send, empty for none: that of a flag, else of the environment, else
// of the context.
func (o *credentials) bearer() (string, error) {
	if o.flags == nil {
		return o.once, nil
	}
	byFlag, byFile := o.flags.Changed("token"), o.flags.Changed("token-file")
	if byFlag && byFile {
		return "", usageError{errors.New("--token and --token-file: give one of the two")}
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

// source returns what has the token of each call where that changes: the login of the
// context, if nothing else says who the user is. It is nil if nothing changes.
func (o *credentials) source() func(ctx context.Context, refused string) (string, error) {
	if o.session == nil || o.token != "" || o.tokenFile != "" || os.Getenv("PORTOLAN_TOKEN") != "" || os.Getenv("PORTOLAN_TOKEN_FILE") != "" {
		return nil
	}
	return o.session.token
}

// readToken is a token, or that of a file.
func readToken(token, file string) (string, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", dataError{fmt.Errorf("--token-file: %w", err)}
		}
		token = string(text)
	}
	token = strings.TrimSpace(token)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", dataError{errors.New("the token is empty, or not one word of text: take what portolan user token add printed")}
	}
	return token, nil
}
