package etcdtest

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// Secured is an etcd with TLS and authentication. It has the users that
// docs/operations/external-etcd.md has operators make: root, portolan, portolan-reader.
type Secured struct {
	*Server
	Authority *Authority
	// Files are the files of a client whose certificate names no etcd user.
	Files dial.Files
}

// NewSecured runs a Secured. An unused token expires after a second.
func NewSecured(t testing.TB, adjust ...Adjust) *Secured {
	t.Helper()
	a := NewAuthority(t)
	s := &Secured{Authority: a, Files: a.Files(t, "client")}
	s.Server = NewServer(t, append(adjust, a.TLS(t, "0"), func(c *embed.Config) {
		c.BcryptCost, c.AuthTokenTTL = 4, 1
	})...)
	EnableAuth(t, s.Dial(t, ""))
	return s
}

// As returns the options to connect as a user with the password in Passwords; ""
// connects without a user.
func (s *Secured) As(user string) dial.Options {
	o := dial.Options{Endpoints: []string{s.Endpoint}, TLS: s.Files.Config}
	if user != "" {
		o.User, o.Password = user, func() (string, error) { return Passwords(user), nil }
	}
	return o
}

// Dial returns a client that connects as a user.
func (s *Secured) Dial(t testing.TB, user string) *clientv3.Client {
	t.Helper()
	return DialWith(t, s.As(user))
}
