package command

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/seal"
)

// storeJoin makes a server join the store of other servers.
type storeJoin struct {
	server, dataDir, sealingKey string
	token                       func() (string, error)
	// ca is the file of the authorities of the other server's certificate. Empty means those
	// that the token pins, else the system's.
	ca     string
	agent  string
	logger *slog.Logger

	transport  *http.Transport // transport of the request under way
	distrusted bool
}

// join gets the place of this server, and keeps it in the data directory. It retries while the
// other server cannot answer. It may be stopped at any point, and called again.
func (j *storeJoin) join(ctx context.Context) error {
	token, err := j.token()
	if err != nil {
		return err
	}
	if token == "" {
		return exit.With(exit.Usage, errors.New("--join: nothing says that this server may join: give the token of portolan store member invite by --token-file"))
	}
	if err := os.MkdirAll(j.dataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	dir := peercert.In(j.dataDir)
	key, err := dir.Key()
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return err
	}
	in := maintenance.JoinRequest{CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}
	token, pin := invitation.Unpin(token)
	wait, last := retry.New(time.Second, 15*time.Second), ""
	for {
		got, err := j.ask(ctx, token, pin, in)
		if err == nil {
			return j.keep(dir, got)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if code := exit.Of(err); code != exit.Unreachable && code != exit.Conflict {
			return exit.With(exit.Data, fmt.Errorf("join the store of %s: %w", j.server, err))
		}
		if text := err.Error(); text != last {
			last = text
			j.logger.Warn("this server cannot join the store yet, it will be tried again", "server", j.server, "err", err)
		}
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// ask requests the place once.
func (j *storeJoin) ask(ctx context.Context, token, pin string, in maintenance.JoinRequest) (*maintenance.Admission, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	config, err := j.trust(ctx, pin)
	if err != nil {
		return nil, err
	}
	api, err := j.client(config, token)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	out := &maintenance.Admission{}
	err = api.Post(ctx, maintenance.JoinPath, in, out)
	if j.distrusted {
		err = exit.With(exit.Data, err) // a retry would not help
	}
	return out, err
}

// RoundTrip implements http.RoundTripper. It notes whether the server's certificate was not
// trusted.
func (j *storeJoin) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := j.transport.RoundTrip(r)
	var untrusted *tls.CertificateVerificationError
	j.distrusted = errors.As(err, &untrusted)
	return response, err
}

// CloseIdleConnections closes the connections that no request uses.
func (j *storeJoin) CloseIdleConnections() { j.transport.CloseIdleConnections() }

func (j *storeJoin) client(config *tls.Config, token string) (*client.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	j.transport = transport
	return client.New(j.server, call.Options{HTTP: &http.Client{Transport: j}, Token: token, UserAgent: j.agent})
}

// trust returns the TLS configuration for the server that gets the token. It trusts the
// authorities of --ca, else the roots that the token pins, else the system's.
func (j *storeJoin) trust(ctx context.Context, pin string) (*tls.Config, error) {
	if j.ca != "" || pin == "" || !strings.HasPrefix(j.server, "https://") {
		config, err := dial.Files{CA: j.ca}.Config()
		if err != nil {
			return nil, exit.With(exit.Data, fmt.Errorf("--ca: %w", err))
		}
		return config, nil
	}
	return enroll.PinnedTrust(ctx, j.server, pin, j.agent)
}

// keep writes what the server was given. It writes the sealing keys before the place, whose
// presence means that everything is there.
func (j *storeJoin) keep(dir peercert.Dir, got *maintenance.Admission) error {
	if got.SealingKeys != "" {
		if err := seal.AddTo(j.sealingKey, []byte(got.SealingKeys)); err != nil {
			return fmt.Errorf("keep the sealing keys of the store: %w", err)
		}
	}
	place := peercert.Place{Name: got.Name, PeerURL: got.PeerURL, ClientURL: got.ClientURL, Join: got.Join}
	if err := dir.Join(place, []byte(got.Certificate), []byte(got.Authority), []byte(got.AuthorityKey)); err != nil {
		return fmt.Errorf("keep the certificate of this member of the store: %w", err)
	}
	j.logger.Info("this server joins a store", "server", j.server, "member", got.Name, "peerURL", got.PeerURL)
	return nil
}

func hasStore(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "etcd", "member"))
	return err == nil
}
