package nameserver_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// needDig returns the path of dig.
func needDig(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("dig")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%v: install the package bind9-dnsutils", err)
	}
	if err != nil {
		t.Skipf("SKIPPED, AND NOTHING WAS TESTED: install the package bind9-dnsutils: %v", err)
	}
	return path
}

// queries are questions as a user of dig writes them, and the answers: the code, aa and tc if they
// are set, and the records in order.
var queries = []struct{ ask, want string }{
	// Hosts of the mesh, both families.
	{"web.test A", "NOERROR aa | web.test. 30 A 10.9.0.1"},
	{"web.test. A", "NOERROR aa | web.test. 30 A 10.9.0.1"},
	{"web.test AAAA", "NOERROR aa"},
	{"six.test A", "NOERROR aa"},
	{"six.test AAAA", "NOERROR aa | six.test. 30 AAAA fd00:9::6"},
	{"both.test A", "NOERROR aa | both.test. 30 A 10.9.0.2"},
	{"both.test AAAA", "NOERROR aa | both.test. 30 AAAA fd00:9::2"},
	{"both.test ANY", "NOERROR aa | both.test. 30 A 10.9.0.2 | both.test. 30 AAAA fd00:9::2"},
	{"+tcp web.test A", "NOERROR aa | web.test. 30 A 10.9.0.1"},
	{"+tcp both.test AAAA", "NOERROR aa | both.test. 30 AAAA fd00:9::2"},
	{"+noedns web.test A", "NOERROR aa | web.test. 30 A 10.9.0.1"},
	{"+dnssec web.test A", "NOERROR aa | web.test. 30 A 10.9.0.1"},
	{"+norecurse web.test A", "NOERROR aa | web.test. 30 A 10.9.0.1"},
	{"+edns=1 +noednsneg web.test A", "BADVERS"},
	{"headless.test A", "NOERROR aa | headless.test. 30 A 10.0.0.22 | headless.test. 30 A 10.0.0.23 | headless.test. 30 A 10.0.0.3"},
	{"headless.test AAAA", "NOERROR aa"},
	// The case of the asker, who may use it to tell answers (draft-vixie-dnsext-dns0x20).
	{"wEb.TeSt A", "NOERROR aa | wEb.TeSt. 30 A 10.9.0.1"},
	{"mixed.test A", "NOERROR aa | mixed.test. 30 A 10.9.0.7"},
	{"MIXED.TEST A", "NOERROR aa | MIXED.TEST. 30 A 10.9.0.7"},
	// Wildcards: not the apex, the longest first, a host before any.
	{"a.wild.test A", "NOERROR aa | a.wild.test. 30 A 10.9.0.3"},
	{"b.a.wild.test A", "NOERROR aa | b.a.wild.test. 30 A 10.9.0.3"},
	{"A.wIld.test A", "NOERROR aa | A.wIld.test. 30 A 10.9.0.3"},
	{"a.wild.test AAAA", "NOERROR aa"},
	{"wild.test A", "NOERROR | wild.test. 100 A 203.0.113.2"},
	{"a.deep.wild.test A", "NOERROR aa | a.deep.wild.test. 30 A 10.9.0.4"},
	{"deep.wild.test A", "NOERROR aa | deep.wild.test. 30 A 10.9.0.3"},
	{"exact.wild.test A", "NOERROR aa | exact.wild.test. 30 A 10.9.0.5"},
	{"b.exact.wild.test A", "NOERROR aa | b.exact.wild.test. 30 A 10.9.0.3"},
	{"*.wild.test A", "NOERROR aa | *.wild.test. 30 A 10.9.0.3"},
	{"below.web.test A", "NXDOMAIN"},
	// Short names, and the first search domain behind them.
	{"reviews.shop.svc.cluster.local A", "NOERROR aa | reviews.shop.svc.cluster.local. 30 A 10.9.1.1"},
	{"reviews A", "NOERROR aa | reviews. 30 A 10.9.1.1"},
	{"reviews.shop A", "NOERROR aa | reviews.shop. 30 A 10.9.1.1"},
	{"reviews.shop.svc A", "NOERROR aa | reviews.shop.svc. 30 A 10.9.1.1"},
	{"ratings A", "NXDOMAIN"},
	{"ratings.bank A", "NOERROR aa | ratings.bank. 30 A 10.9.1.2"},
	{"ratings.bank AAAA", "NOERROR aa | ratings.bank. 30 AAAA fd00:9:1::2"},
	{"bare A", "NOERROR aa | bare. 30 A 10.9.1.3"},
	{"reviews.corp.example A", "NOERROR aa | reviews.corp.example. 30 CNAME reviews.shop.svc.cluster.local. | reviews.shop.svc.cluster.local. 30 A 10.9.1.1"},
	{"reviews.shop.corp.example A", "NOERROR aa | reviews.shop.corp.example. 30 CNAME reviews.shop.svc.cluster.local. | reviews.shop.svc.cluster.local. 30 A 10.9.1.1"},
	{"reviews.shop.corp.example AAAA", "NOERROR aa"},
	{"web.test.corp.example A", "NOERROR aa | web.test. 30 A 10.9.0.1 | web.test.corp.example. 30 CNAME web.test."},
	{"reviews.other.example A", "NXDOMAIN"},
	{"ftp.corp.example A", "NOERROR aa | ftp.corp.example. 30 A 10.9.1.4"},
	{"a.wild.test.corp.example A", "NOERROR aa | a.wild.test.corp.example. 30 A 10.9.1.4"},
	// Other types of hosts of the mesh.
	{"web.test HTTPS", "NOERROR aa"},
	{"web.test SVCB", "NOERROR aa"},
	{"web.test MX", "NOERROR | web.test. 100 MX 10 mail.web.test."},
	{"web.test TXT", "NOERROR"},
	{"both.test TXT", "NOERROR"},
	{"a.wild.test MX", "NOERROR"},
	// All else is the resolvers'.
	{"www.example.com A", "NOERROR | www.example.com. 100 A 192.0.2.1"},
	{"+tcp www.example.com AAAA", "NOERROR | www.example.com. 100 AAAA 2001:db8::1"},
	{"www.example.com HTTPS", `NOERROR | www.example.com. 100 HTTPS 1 . alpn="h2" ipv4hint=192.0.2.1`},
	{"alias.example.com A", "NOERROR | alias.example.com. 50 CNAME www.example.com. | www.example.com. 100 A 192.0.2.1"},
	{"wWw.eXample.cOm AAAA", "NOERROR | www.example.com. 100 AAAA 2001:db8::1"},
	{"example.com MX", "NOERROR | example.com. 100 MX 10 mail.example.com."},
	{"example.com TXT", `NOERROR | example.com. 100 TXT "v=spf1 -all"`},
	{"_sip._tcp.example.com SRV", "NOERROR | _sip._tcp.example.com. 100 SRV 1 2 5060 www.example.com."},
	{"unknown.example.com TYPE4711", `NOERROR | unknown.example.com. 100 TYPE4711 \# 3 ABCDEF`},
	{"-x 192.0.2.1", "NOERROR | 1.2.0.192.in-addr.arpa. 100 PTR www.example.com."},
	{"-x 10.9.0.1", "NXDOMAIN"},
	{"none.example.com A", "NXDOMAIN"},
	{"example.com A", "NOERROR"},
	{". NS", "NXDOMAIN"},
	{"+tcp example.com AXFR", "REFUSED"},
	{"-c CH www.example.com A", "NOERROR | www.example.com. 100 A 192.0.2.1"},
	{"+opcode=notify web.test SOA", "NOTIMP"},
}

var (
	headOf  = regexp.MustCompile(`(?s)status: (\w+),.*?flags: ([a-z ]*);`)
	blanks  = regexp.MustCompile(`\s+`)
	records = regexp.MustCompile(`(?m)^[^;\s].*$`)
)

// TestDig: dig gets the expected answers.
func TestDig(t *testing.T) {
	t.Parallel()
	path := needDig(t)
	u := startUpstream(t)
	m := startMachine(t, nil, u)
	m.table.Update(resources(t, hosts), nil)
	host, port, _ := strings.Cut(m.address, ":")
	for _, q := range queries {
		t.Run(q.ask, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"@" + host, "-p", port, "+tries=1", "+timeout=5", "+nocookie", "+noall", "+comments", "+answer"}, strings.Fields(q.ask)...)
			out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
			if got := digest(string(out)); got != q.want {
				t.Errorf("it is %q, want %q: %v\n%s", got, q.want, err, out)
			}
		})
	}
}

// digest returns what the table of queries has of dig's output.
func digest(out string) string {
	head := headOf.FindStringSubmatch(out)
	if head == nil {
		if strings.Contains(out, "Transfer failed") {
			return "REFUSED"
		}
		return "no answer"
	}
	text := head[1]
	for _, flag := range strings.Fields(head[2]) {
		if flag == "aa" || flag == "tc" {
			text += " " + flag
		}
	}
	var all []string
	for _, line := range records.FindAllString(out, -1) {
		line = blanks.ReplaceAllString(line, " ")
		all = append(all, strings.Replace(strings.Replace(line, " IN ", " ", 1), " CH ", " ", 1))
	}
	slices.Sort(all)
	return strings.Join(append([]string{text}, all...), " | ")
}
