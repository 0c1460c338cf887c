// Package secrets serves a machine's certificate and the roots of the mesh over SDS, as the secrets
// "default" and "ROOTCA" that Istio's agent serves
// (https://istio.io/latest/docs/ops/best-practices/security/). The server of the mesh makes an Envoy
// ask for them here if its node metadata say so (SDS_CLUSTER).
package secrets

import (
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Server serves the secrets of a directory of package enroll.
type Server struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	dir string

	mu      sync.Mutex
	now     secrets
	changed chan struct{} // closed when now changes
}

// secrets are those of one certificate. They are never modified.
type secrets struct {
	version string
	of      map[string]*anypb.Any
	until   time.Time // zero if the certificate cannot be read
}

// New returns a server, which has read the directory.
func New(dir string) (*Server, error) {
	s := &Server{dir: dir, changed: make(chan struct{})}
	return s, s.Reload()
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	secretv3.RegisterSecretDiscoveryServiceServer(g, s)
}

// Reload reads the directory again, and sends what is new to all clients at once.
func (s *Server) Reload() error {
	var content [3][]byte
	// The files are links through one link: a directory that was replaced meanwhile is read again.
	for range 2 {
		at, err := filepath.EvalSymlinks(filepath.Join(s.dir, enroll.ChainFile))
		if err != nil {
			return err
		}
		for i, name := range []string{enroll.ChainFile, enroll.KeyFile, enroll.RootsFile} {
			if content[i], err = os.ReadFile(filepath.Join(filepath.Dir(at), name)); err != nil {
				break
			}
		}
		if err == nil {
			break
		}
	}
	if content[2] == nil {
		return fmt.Errorf("%s: the certificate cannot be read: get it with portolan-agent join", s.dir)
	}
	var until time.Time
	if pair, err := tls.X509KeyPair(content[0], content[1]); err == nil {
		until = pair.Leaf.NotAfter
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	version, _ := strconv.Atoi(s.now.version)
	s.now = secrets{until: until, version: strconv.Itoa(version + 1), of: map[string]*anypb.Any{
		names.WorkloadCertificate: message.Pack(socket.CertificateSecret(names.WorkloadCertificate, content[0], content[1])),
		names.WorkloadRoots:       message.Pack(socket.RootsSecret(names.WorkloadRoots, content[2], nil)),
	}}
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Until returns when the certificate that is served expires; zero if it is damaged, or not that of
// its key.
func (s *Server) Until() time.Time {
	now, _ := s.current()
	return now.until
}

func (s *Server) current() (secrets, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

// receive passes on the requests of a stream until that ends.
func receive[Q any](stream interface {
	grpc.ServerStream
	Recv() (Q, error)
}) (requests chan Q, failed chan error) {
	requests, failed = make(chan Q), make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				failed <- stream.Context().Err()
				return
			}
		}
	}()
	return requests, failed
}

// StreamSecrets implements SDS in state of the world.
func (s *Server) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	requests, failed := receive[*discoveryv3.DiscoveryRequest](stream)
	var asked []string
	sent := ""
	for {
		now, changed := s.current()
		if len(asked) > 0 && sent != now.version {
			out := &discoveryv3.DiscoveryResponse{TypeUrl: resource.SecretType, VersionInfo: now.version, Nonce: now.version}
			for _, name := range asked {
				if secret := now.of[name]; secret != nil {
					out.Resources = append(out.Resources, secret)
				}
			}
			if err := stream.Send(out); err != nil {
				return err
			}
			sent = now.version
		}
		select {
		case err := <-failed:
			return err
		case r := <-requests:
			if !slices.Equal(asked, r.GetResourceNames()) {
				asked, sent = r.GetResourceNames(), ""
			}
		case <-changed:
		}
	}
}

// DeltaSecrets implements SDS in the delta variant. A name that is not served is answered as
// removed.
func (s *Server) DeltaSecrets(stream secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	requests, failed := receive[*discoveryv3.DeltaDiscoveryRequest](stream)
	sent := map[string]string{} // the version of each name that the client asks for
	for nonce := 1; ; nonce++ {
		now, changed := s.current()
		out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: resource.SecretType, Nonce: strconv.Itoa(nonce)}
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			if sent[name] == now.version {
				continue
			}
			sent[name] = now.version
			if secret := now.of[name]; secret != nil {
				out.Resources = append(out.Resources, &discoveryv3.Resource{Name: name, Version: now.version, Resource: secret})
			} else {
				out.RemovedResources = append(out.RemovedResources, name)
			}
		}
		if len(out.Resources)+len(out.RemovedResources) > 0 {
			if err := stream.Send(out); err != nil {
				return err
			}
		}
		select {
		case err := <-failed:
			return err
		case r := <-requests:
			for _, name := range r.GetResourceNamesSubscribe() {
				sent[name] = ""
			}
			for _, name := range r.GetResourceNamesUnsubscribe() {
				delete(sent, name)
			}
		case <-changed:
		}
	}
}
