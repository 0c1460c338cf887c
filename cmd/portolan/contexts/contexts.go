package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"sigs.k8s.io/yaml"
)

// Context is a server and what it is told. Everything but Name may be empty.
type Context struct {
	Name      string `json:"name"`
	Server    string `json:"server,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// CA, Cert, Key and TokenFile are paths of files.
	CA        string `json:"ca,omitempty"`
	Cert      string `json:"cert,omitempty"`
	Key       string `json:"key,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	// Token is secret.
	Token string `json:"token,omitempty"`
	// Login is what a login with a provider came to; nil without one.
	Login *Login `json:"login,omitempty"`
}

// Login is a user who is logged in with an OpenID Connect provider.
type Login struct {
	// Server is the one that the user logged in at. No other has the tokens.
	Server string `json:"server,omitempty"`
	// Issuer, ClientID and CA, in PEM, are by what the provider is asked for the next token.
	Issuer   string `json:"issuer,omitempty"`
	ClientID string `json:"clientId,omitempty"`
	CA       string `json:"ca,omitempty"`
	// IDToken is what the server is shown, and RefreshToken what earns the next one; empty
	// if the provider gives none. Both are secret.
	IDToken      string `json:"idToken,omitempty"`
	RefreshToken string `json:"refreshToken,omitempty"`
}

// File is what the file of contexts has. The zero File is that of a user without one.
type File struct {
	// Current names the context of commands that name none; empty for none.
	Current  string    `json:"current,omitempty"`
	Contexts []Context `json:"contexts,omitempty"`
}

// DefaultPath returns where the file is unless its user says otherwise:
// portolan/config.yaml in the user's configuration directory; empty where there is none.
func DefaultPath() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "portolan", "config.yaml")
}

// Read reads a file; one that is missing is the zero File. It refuses a file that other
// users can read, as it may have tokens.
func Read(file string) (File, error) {
	opened, err := os.Open(file)
	switch {
	case file == "" || errors.Is(err, fs.ErrNotExist):
		return File{}, nil
	case err != nil:
		return File{}, err
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Stat()
	switch {
	case err != nil:
		return File{}, err
	case info.Mode().Perm()&0o077 != 0:
		return File{}, fmt.Errorf("%s may be used by other users of this machine, and may have tokens: chmod 600 %[1]s", file)
	}
	text := bytes.Buffer{}
	if _, err := text.ReadFrom(opened); err != nil {
		return File{}, err
	}
	var f File
	if err := yaml.UnmarshalStrict(text.Bytes(), &f); err != nil {
		return File{}, fmt.Errorf("%s: %w", file, err)
	}
	return f, nil
}

// errNowhere is the error of a file without a name.
var errNowhere = errors.New("there is no directory for a user's configuration: name a file in $PORTOLAN_CONFIG")

// Write writes a file whole, for its owner alone, and makes its directory if need be.
func (f File) Write(file string) error {
	if file == "" {
		return errNowhere
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	return renameio.WriteFile(file, text, 0o600, renameio.WithStaticPermissions(0o600))
}

// Find returns a context by its name.
func (f File) Find(name string) (Context, bool) {
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return Context{}, false
	}
	return f.Contexts[i], true
}

// With returns a File that has a context in place of the one of its name. The contexts are in
// the order of their names.
func (f File) With(c Context) File {
	f = f.without(c.Name)
	f.Contexts = append(f.Contexts, c)
	slices.SortFunc(f.Contexts, func(a, b Context) int { return strings.Compare(a.Name, b.Name) })
	return f
}

// Without returns a File that lacks a context. If that was the current one, none is.
func (f File) Without(name string) File {
	f = f.without(name)
	if f.Current == name {
		f.Current = ""
	}
	return f
}

func (f File) without(name string) File {
	f.Contexts = slices.DeleteFunc(slices.Clone(f.Contexts), func(c Context) bool { return c.Name == name })
	return f
}

// Names are those of the contexts.
func (f File) Names() []string {
	out := make([]string, len(f.Contexts))
	for i, c := range f.Contexts {
		out[i] = c.Name
	}
	return out
}
