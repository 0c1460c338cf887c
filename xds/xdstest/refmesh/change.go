package refmesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// Change is a write or deletion of objects, and how to recognise its arrival.
type Change struct {
	Objects []*config.Config
	Delete  bool
	// Mark are bytes that only resources with the change contain. For a deletion, the removed
	// names contain it.
	Mark []byte
}

// ChangeEndpoint gives the last endpoint of a service a new address, different for each n. No
// proxy has that address.
func (m Mesh) ChangeEndpoint(i, n int) Change {
	object := m.ServiceEntry(i)
	moved := address(224, n) // outside the addresses of proxies
	object.Spec.(*networking.ServiceEntry).Endpoints[Endpoints-1].Address = moved
	return Change{Objects: []*config.Config{object}, Mark: text(moved)}
}

// ChangeRoutes changes a header that a VirtualService, or its delegate, matches: another value
// for each n.
func (m Mesh) ChangeRoutes(i, n int) Change {
	mark := fmt.Sprintf("tenant-of-change-%d", n)
	if m.Delegated {
		return Change{Objects: []*config.Config{m.Delegate(i, mark)}, Mark: text(mark)}
	}
	return Change{Objects: []*config.Config{m.VirtualService(i, mark)}, Mark: text(mark)}
}

// ChangePolicy changes a path that the policy of the first namespace denies: another one for each
// n.
func (m Mesh) ChangePolicy(n int) Change {
	mark := fmt.Sprintf("/of-change-%d", n)
	return Change{Objects: []*config.Config{m.Policy(0, mark)}, Mark: text(mark)}
}

// ChangePattern changes the pattern of a service: another one for each n.
func (m Mesh) ChangePattern(i, n int) Change {
	mark := fmt.Sprintf("of-change-%d", n)
	return Change{Objects: []*config.Config{m.Pattern(i, mark)}, Mark: []byte(mark)}
}

// ChangeRule changes how many connections a DestinationRule allows: another number for each n.
func (m Mesh) ChangeRule(i, n int) Change {
	const large = 1 << 28 // takes five bytes on the wire, unlike any other number of the mesh
	value := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), large+uint64(n))
	return Change{Objects: []*config.Config{m.DestinationRule(i, large+n)}, Mark: value}
}

// ChangeGateway changes the host of a Gateway: another one for each n.
func (m Mesh) ChangeGateway(n int) Change {
	mark := fmt.Sprintf("www-%d.mesh.test", n)
	object := &config.Config{Meta: meta(schema.Gateway, RootNamespace, "edge"), Spec: &networking.Gateway{
		Selector: map[string]string{"app": "edge"},
		Servers:  []*networking.Server{{Port: &networking.Port{Number: HTTPPort, Name: "http", Protocol: "HTTP"}, Hosts: []string{mark}}},
	}}
	return Change{Objects: []*config.Config{object}}
}

// ChangeSidecar changes which services the first namespace imports besides Target: others for
// each n.
func (m Mesh) ChangeSidecar(n int) Change {
	const imports = 10
	hosts := []string{"*/" + m.Host(Target)}
	for i := range imports {
		hosts = append(hosts, "*/"+m.Host((Target+1+n*imports+i)%m.Services))
	}
	return Change{Objects: []*config.Config{sidecar(Namespace(0), hosts)}}
}

// ChangeSecret changes the authorities in the secret Credential: others for each n.
func (m Mesh) ChangeSecret(n int) Change {
	roots, mark := authority(n)
	return Change{Mark: mark, Objects: []*config.Config{{
		Meta: meta(schema.Secret, Namespace(0), Credential),
		Spec: &secret.Spec{Type: secret.Opaque, Data: map[string][]byte{secret.TLSAuthority: roots}},
	}}}
}

// ChangeGatewayServer gives the server of a Gateway a second host: another one for each n.
func (m Mesh) ChangeGatewayServer(i, n int) Change {
	mark := fmt.Sprintf("of-change-%d.edge.test", n)
	return Change{Objects: []*config.Config{m.Gateway(i, mark)}, Mark: text(mark)}
}

// ChangeGatewayRoutes changes the routes of a Gateway: others for each n.
func (m Mesh) ChangeGatewayRoutes(i, n int) Change {
	mark := fmt.Sprintf("of-change-%d", n)
	return Change{Objects: []*config.Config{m.GatewayRoutes(i, mark)}, Mark: text(mark)}
}

// ChangeDoor replaces the certificate Door and its key: another pair for each n.
func (m Mesh) ChangeDoor(n int) Change {
	cert, key, mark := certificate(n)
	return Change{Mark: mark, Objects: []*config.Config{{
		Meta: meta(schema.Secret, Namespace(0), Door),
		Spec: &secret.Spec{Type: secret.TLS, Data: map[string][]byte{secret.TLSCert: cert, secret.TLSKey: key}},
	}}}
}

// authority makes the certificate of an authority, in PEM, and returns a unique part of it as
// mark.
func authority(n int) (roots, mark []byte) {
	roots, _, mark = certificate(n)
	return roots, mark
}

// certificate makes a self-signed certificate and its key, in PEM. mark is a unique part of the
// certificate.
func certificate(n int) (cert, private, mark []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // a system without random numbers
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(n) + 1), Subject: pkix.Name{CommonName: fmt.Sprintf("authority %d", n)},
		DNSNames:  []string{"*.edge.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * 365 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	const line = 65 // the last full line is part of the signature
	last := (len(cert) - len("-----END CERTIFICATE-----\n")) / line * line
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), cert[last-2*line : last-line]
}

// NewService adds a service to the mesh: another one for each n.
func (m Mesh) NewService(n int) Change {
	i := m.Services + n
	return Change{Objects: []*config.Config{m.ServiceEntry(i)}, Mark: []byte(m.Host(i))}
}

// DeleteService deletes the service of NewService.
func (m Mesh) DeleteService(n int) Change {
	out := m.NewService(n)
	out.Delete = true
	return out
}

// text returns a string as encoded on the wire, with its length before it. So 10.0.0.1 does not
// match 10.0.0.10.
func text(s string) []byte { return protowire.AppendString(nil, s) }
