package serve

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"
)

// TestAPIURL: how other machines call the config API. At a wildcard address it has the first
// name that the operator gave, else that of the machine.
func TestAPIURL(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	for _, c := range []struct {
		of   *security
		at   string
		want string
	}{
		{&security{}, "127.0.0.1:15080", "http://127.0.0.1:15080"},
		{&security{own: certificate}, "127.0.0.1:15080", "http://127.0.0.1:15080"},
		{&security{own: certificate}, "[::1]:15080", "http://[::1]:15080"},
		{&security{own: certificate}, "10.0.0.1:15080", "https://10.0.0.1:15080"},
		{&security{own: certificate}, "[fd00::1]:15080", "https://[fd00::1]:15080"},
		{&security{own: certificate}, "0.0.0.0:15080", "https://" + machine + ":15080"},
		{&security{own: certificate, tls: TLS{Names: []string{"cp-1.example.com", "cp.example.com"}}}, "[::]:15080", "https://cp-1.example.com:15080"},
	} {
		address, err := net.ResolveTCPAddr("tcp", c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.of.apiURL(address); !strings.EqualFold(got, c.want) {
			t.Errorf("%s: %s, want %s", c.at, got, c.want)
		}
	}
}
