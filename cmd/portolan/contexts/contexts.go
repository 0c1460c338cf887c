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

// Context is a named server, with the namespace, files and credentials to use there.
// Everything but Name may be empty.
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
	// Login is the result of a login with a provider, nil without one.
	Login *Login `json:"login,omitempty"`
}

// Login holds the tokens of a user who logged in with an OpenID Connect provider.
type Login struct {
	// Server is the server that the user logged in to. The tokens are for no other.
	Server string `json:"server,omitempty"`
	// Issuer, ClientID and CA, in PEM, serve to get the next token from the provider.
	Issuer   string `json:"issuer,omitempty"`
	ClientID string `json:"clientId,omitempty"`
	CA       string `json:"ca,omitempty"`
	// IDToken is the token that the server gets. RefreshToken gets the next one from the
	// provider; empty if the provider gives none. Both are secret.
	IDToken      string `json:"idToken,omitempty"`
	RefreshToken string `json:"refreshToken,omitempty"`
}

// File is the content of the file of contexts. The zero File stands for a missing one.
type File struct {
	// Current is the name of the context for commands that name none; empty for none.
	Current  string    `json:"current,omitempty"`
	Contexts []Context `json:"contexts,omitempty"`
}

// DefaultPath returns the default path of the file: portolan/config.yaml in the user's
// configuration directory. It is empty if there is no such directory.
func DefaultPath() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "portolan", "config.yaml")
}

// Read reads a file; a missing one is the zero File. It refuses a file that other users can
// read, because it may have tokens, and one with two contexts of a name.
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
	for i, one := range f.Contexts {
		if earlier := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == one.Name }); earlier < i {
			return File{}, fmt.Errorf("%s: contexts[%d].name: %q is the name of contexts[%d], too: leave one of them", file, i, one.Name, earlier)
		}
	}
	return f, nil
}

// errNowhere is the error for an empty path.
var errNowhere = errors.New("there is no directory for a user's configuration: name a file in $PORTOLAN_CONFIG")

// Write replaces a file atomically, readable only by its owner, and creates its directory if
// necessary.
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

// Find returns the context with a name.
func (f File) Find(name string) (Context, bool) {
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return Context{}, false
	}
	return f.Contexts[i], true
}

// With returns a File with a context added, in place of one with the same name. The contexts
// are sorted by name.
func (f File) With(c Context) File {
	f = f.without(c.Name)
	f.Contexts = append(f.Contexts, c)
	slices.SortFunc(f.Contexts, func(a, b Context) int { return strings.Compare(a.Name, b.Name) })
	return f
}

// Without returns a File without a context. If that was the current one, no context is
// current.
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

// Names returns the names of the contexts.
func (f File) Names() []string {
	out := make([]string, len(f.Contexts))
	for i, c := range f.Contexts {
		out[i] = c.Name
	}
	return out
}
