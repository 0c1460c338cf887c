package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/spelling"
)

// celAttributes has the attributes that Envoy 1.40 knows in expressions of CEL, by their first name:
// the names behind it, none where any may stand there.
// (Envoy: intro/arch_overview/advanced/attributes, extensions/filters/common/expr/context.cc.)
var celAttributes = func() map[string][]string {
	const ofTLS = ` tls_version subject_local_certificate subject_peer_certificate dns_san_local_certificate dns_san_peer_certificate
		uri_san_local_certificate uri_san_peer_certificate sha256_peer_certificate_digest peer_certificate transport_failure_reason`
	out := map[string][]string{}
	for root, members := range map[string]string{
		"request":     "path url_path host scheme method headers headers_bytes referer useragent time id protocol query duration size total_size",
		"response":    "code code_details flags grpc_status headers headers_bytes trailers size total_size backend_latency",
		"source":      "address port",
		"destination": "address port",
		"connection":  "id mtls requested_server_name termination_details" + ofTLS,
		"upstream":    "address port local_address locality request_attempt_count cx_pool_ready_duration num_endpoints" + ofTLS,
		"xds": `node cluster_name cluster_metadata listener_direction listener_metadata route_name route_metadata virtual_host_name
			virtual_host_metadata upstream_host_metadata upstream_host_locality_metadata filter_chain_name`,
		"metadata":              "filter_metadata typed_filter_metadata",
		"filter_state":          "",
		"upstream_filter_state": "",
	} {
		out[root] = strings.Fields(members)
	}
	return out
}()

// celWords are names that stand for a value or a type in every expression.
var celWords = strings.Fields("true false null bool bytes double int list map null_type string type uint google")

// celAttribute is an attribute by its first names: requst.headers. member is empty for the first alone.
type celAttribute struct{ root, member string }

func (a celAttribute) String() string { return strings.TrimSuffix(a.root+"."+a.member, ".") }

// known says whether Envoy knows an attribute.
func (a celAttribute) known() bool {
	members, known := celAttributes[a.root]
	return known && (a.member == "" || len(members) == 0 || slices.Contains(members, a.member)) || slices.Contains(celWords, a.root)
}

// advice says what an unknown attribute may have been meant as.
func (a celAttribute) advice() string {
	roots := slices.Sorted(maps.Keys(celAttributes))
	root := a.root
	if celAttributes[root] == nil {
		root = spelling.Nearest(a.root, roots)
	}
	if root == "" {
		for _, of := range roots {
			if slices.Contains(celAttributes[of], a.root) {
				return "did you mean " + of + "." + a.root + "?"
			}
		}
		return "attributes begin with one of " + strings.Join(roots, ", ") + ", and a text is in quotes"
	}
	meant := celAttribute{root, a.member}
	if !meant.known() {
		meant.member = spelling.Nearest(a.member, celAttributes[root])
	}
	if root == a.root && meant.member == "" {
		return root + " has " + strings.Join(celAttributes[root], ", ")
	}
	return "did you mean " + meant.String() + "?"
}

// expression says why proxies would refuse an expression of CEL. It warns of attributes that they do
// not know: they take these, as they do with what a newer Envoy knows.
func (c checker) expression(text string) error {
	attributes, err := parseCEL(text)
	if err != nil {
		return err
	}
	var told []string
	for _, a := range attributes {
		if !a.known() && !slices.Contains(told, a.String()) {
			told = append(told, a.String())
			c.warn("%s", fmt.Sprintf("names %s, which Envoy 1.40 does not know: it has no value, and nothing matches by it; %s", a, a.advice()))
		}
	}
	return nil
}
