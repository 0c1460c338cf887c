package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"

	"k8s.io/client-go/tools/clientcmd/api"
)

// errUnusable replaces an error about the content of a Secret, which may quote the content.
var errUnusable = errors.New("kubeconfig: cannot be used: check its server, proxy-url, certificates and key")

// CheckContent returns all that is wrong with a kubeconfig from a Secret, nil if New takes it as
// Options.Content. The error has nothing of its credentials.
func CheckContent(content []byte) error {
	if len(content) == 0 {
		return errors.New("kubeconfig: is empty")
	}
	_, err := New(Options{Name: "checked", Content: content})
	return err
}

// CloseIdleConnections ends the connections that no request uses. Call it when the Cluster is
// followed no more.
func (c *Cluster) CloseIdleConnections() { c.link.client.Load().http.CloseIdleConnections() }

// checkUsable refuses what no client can use. What it says quotes nothing.
func checkUsable(cluster *api.Cluster, user *api.AuthInfo, refuse func(bad bool, text string)) {
	server, err := url.Parse(cluster.Server)
	refuse(cluster.Server == "", "server: is missing: write https://HOST:PORT")
	refuse(cluster.Server != "" && (err != nil || server.Host == "" || !slices.Contains([]string{"https", "http"}, server.Scheme)), "server: is no URL: write https://HOST:PORT")
	if err == nil && server.Host != "" {
		refuse(server.User != nil, "server: has credentials in its URL: write them under the user")
		refuse(server.Scheme == "http" && !loopback(server), "server: is on another machine, and would be followed in plaintext: use https")
	}
	proxy, err := url.Parse(cluster.ProxyURL)
	refuse(err != nil || cluster.ProxyURL != "" && proxy.Host == "", "proxy-url: is no URL")
	authorities := cluster.CertificateAuthorityData
	refuse(len(authorities) > 0 && !x509.NewCertPool().AppendCertsFromPEM(authorities), "certificate-authority-data: has no certificate in PEM")
	certificate, key := user.ClientCertificateData, user.ClientKeyData
	switch {
	case len(certificate) == 0 && len(key) == 0:
	case len(certificate) == 0:
		refuse(user.ClientCertificate == "", "client-certificate-data: is missing: it has the certificate of client-key-data")
	case len(key) == 0:
		refuse(user.ClientKey == "", "client-key-data: is missing: it has the key of client-certificate-data")
	default:
		_, err := tls.X509KeyPair(certificate, key)
		refuse(err != nil, "client-key-data: is not the key of client-certificate-data, both in PEM")
	}
}
