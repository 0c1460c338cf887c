package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A StrangerError is the error of a member at whose address a member of another store answers:
// a server that began a store of its own there, in place of joining this one.
type StrangerError struct {
	// Name is the stranger's own name in its store; empty where only its certificate is known.
	Name string
	// Certificate describes a certificate that another authority signed, empty for none.
	Certificate string
}

// Error implements error.
func (e *StrangerError) Error() string {
	who := "a server that calls itself " + e.Name
	if e.Name == "" {
		who = "a server with " + e.Certificate
	}
	return fmt.Sprintf("%s answers at its address, and is of another store: stop it, empty its data directory, and have it join (portolan store member invite)", who)
}

// stranger returns a StrangerError if the member that answered is not the listed one.
func (r *Roster) stranger(ctx context.Context, m *Member, s *pb.StatusResponse) error {
	if s.Header.GetMemberId() == m.ID {
		return nil
	}
	out := &StrangerError{Name: FormatID(s.Header.GetMemberId())}
	own, err := callAt(ctx, r, m.ClientURLs[0], func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberListResponse, error) {
		return c.MemberList(ctx, clientv3.WithSerializable())
	})
	if err != nil {
		return out // its id names it
	}
	for _, o := range own.Members {
		if o.ID == s.Header.GetMemberId() && o.Name != "" {
			out.Name = o.Name
		}
	}
	return out
}

// strangersCertificate turns the error of a certificate that this store's authority did not
// sign into a StrangerError, and returns any other error as it is.
func strangersCertificate(ctx context.Context, endpoint string, err error) error {
	if !strings.Contains(err.Error(), x509.UnknownAuthorityError{}.Error()) {
		return err
	}
	u, parseErr := url.Parse(endpoint)
	if parseErr != nil {
		return err
	}
	// The connection is for nothing but a look at the certificate: nothing is sent on it.
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}}
	conn, dialErr := dialer.DialContext(ctx, "tcp", u.Host)
	if dialErr != nil {
		return errors.Join(err, dialErr)
	}
	defer conn.Close()
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	return &StrangerError{Certificate: fmt.Sprintf("a certificate of %s, signed by another authority (%s)", leaf.Subject.CommonName, leaf.Issuer.CommonName)}
}
