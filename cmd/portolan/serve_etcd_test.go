package main

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestEtcdFlags: the command reports all faults of the flags of an etcd cluster at once.
func TestEtcdFlags(t *testing.T) {
	t.Setenv("PORTOLAN_ETCD_PASSWORD", "")
	dir := clitest.Write(t, map[string]string{"empty": "\n", "ca.pem": "no PEM", "password": "hunter2\n"})
	tests := map[string]struct {
		args []string
		says []string
	}{
		"without a cluster": {
			[]string{"--etcd-ca", "ca.pem", "--etcd-user", "portolan", "--etcd-max-txn-ops", "1"},
			[]string{"3 faults:", "--etcd-ca: is of an etcd cluster", "--etcd-user: is of", "--etcd-max-txn-ops: is of"},
		},
		"what is no endpoint": {
			[]string{"--etcd-endpoints", "10.0.0.5,https://:2379,ftp://10.0.0.5:2379"},
			[]string{"3 faults:", `"10.0.0.5" is not https://HOST:PORT`, `"https://:2379" is not`, "ftp is neither http nor https"},
		},
		"half in plaintext": {
			[]string{"--etcd-endpoints", "https://10.0.0.5:2379,http://10.0.0.6:2379"},
			[]string{"http://10.0.0.6:2379: either all endpoints are of TLS or none is"},
		},
		"files for plaintext": {
			[]string{"--etcd-endpoints", "http://127.0.0.1:1", "--etcd-server-name", "x"}, []string{"are of plaintext, which has no use for"},
		},
		"files that cannot be used": {
			[]string{"--etcd-endpoints", "127.0.0.1:1", "--etcd-ca", dir + "/ca.pem", "--etcd-cert", dir + "/absent.pem", "--etcd-key", "absent-key.pem"},
			[]string{dir + "/ca.pem: there is no certificate in PEM in it", dir + "/absent.pem"},
		},
		"a certificate without its key": {
			[]string{"--etcd-endpoints", "127.0.0.1:1", "--etcd-cert", "x"}, []string{"--etcd-cert: goes with --etcd-key"},
		},
		"a password in plaintext": {
			[]string{"--etcd-endpoints", "10.0.0.5:2379", "--etcd-user", "portolan", "--etcd-password-file", dir + "/password"},
			[]string{"--etcd-user: the password would go to 10.0.0.5:2379 in plaintext: use https://"},
		},
		"an empty password": {
			[]string{"--etcd-endpoints", "127.0.0.1:1", "--etcd-user", "portolan", "--etcd-password-file", dir + "/empty"},
			[]string{"--etcd-password-file", dir + "/empty is empty"},
		},
		"no password": {
			[]string{"--etcd-endpoints", "127.0.0.1:1", "--etcd-user", "portolan"}, []string{"--etcd-user: needs a password", "$" + "PORTOLAN_ETCD_PASSWORD"},
		},
		"a password of nobody": {
			[]string{"--etcd-endpoints", "127.0.0.1:1", "--etcd-password-file", dir + "/password"}, []string{"is of no use without --etcd-user"},
		},
		"limits": {
			[]string{"--etcd-endpoints", "127.0.0.1:1", "--etcd-max-txn-ops", "1", "--etcd-max-request-bytes", "1Gi"},
			[]string{"2 faults:", "--etcd-max-txn-ops: 1 is too few", "--etcd-max-request-bytes: 1Gi"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := do(t, "", append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0"}, test.args...)...)
			if o.Code != exit.Usage || strings.Contains(o.Err, "hunter2") {
				t.Errorf("%+v", o)
			}
			for _, words := range test.says {
				if !strings.Contains(o.Err, words) {
					t.Errorf("%q does not say %q", o.Err, words)
				}
			}
		})
	}
}
