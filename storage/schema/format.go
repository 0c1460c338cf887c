package schema

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// command matches a command, which Envoy replaces by a value. Its parts are the name, the
// argument, and the length to which Envoy cuts the value.
var command = regexp.MustCompile(`^%([A-Z0-9_]+)(?:\(([^)]*)\))?(:[0-9]{1,9})?%`)

// commands says which commands Envoy 1.40 knows in headers, and which arguments each
// accepts. Envoy refuses all routes of a port over an unknown command or argument. COALESCE
// is left out on purpose: some of its arguments end the process of Envoy.
var commands = func() map[string]func(asked, length string) bool {
	out := map[string]func(asked, length string) bool{}
	add := func(takes func(asked, length string) bool, names string) {
		for name := range strings.FieldsSeq(names) {
			out[name] = takes
		}
	}
	add(func(asked, length string) bool { return asked == "" && length == "" }, `
		ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS CUSTOM_FLAGS DOWNSTREAM_CX_RTT
		DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT DOWNSTREAM_DETECTED_CLOSE_TYPE
		DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_DIRECT_LOCAL_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS
		DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT
		DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_CLOSE_REASON DOWNSTREAM_LOCAL_DNS_SAN
		DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT
		DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1 DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256
		DOWNSTREAM_PEER_CHAIN_SERIALS DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN DOWNSTREAM_PEER_FINGERPRINT_1
		DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256
		DOWNSTREAM_PEER_ISSUER_SERIAL DOWNSTREAM_PEER_OTHERNAME_SAN DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_URI_SAN
		DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_GROUP DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION
		DOWNSTREAM_TRANSPORT_FAILURE_REASON DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME GRPC_STATUS
		GRPC_STATUS_NUMBER HOSTNAME LISTENER_NAME LOCAL_REPLY_BODY PACKETS_RETRANSMITTED PROTOCOL REQUESTED_SERVER_NAME REQUEST_DURATION
		REQUEST_HEADERS_BYTES REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG RESPONSE_HEADERS_BYTES
		RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION ROUNDTRIP_DURATION ROUTE_NAME ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US SPAN_ID STREAM_ID
		TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID
		UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_CONNECTION_POOL_READY_DURATION UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED
		UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST
		UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME UPSTREAM_HOST_NAMES_ATTEMPTED
		UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_CLOSE_REASON
		UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT UPSTREAM_PEER_DNS_SAN
		UPSTREAM_PEER_IP_SAN UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS
		UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_SERVER_NAME UPSTREAM_TLS_CIPHER
		UPSTREAM_TLS_GROUP UPSTREAM_TLS_SESSION_ID UPSTREAM_TLS_VERSION UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED
		UPSTREAM_WIRE_BYTES_SENT VIRTUAL_CLUSTER_NAME`)
	add(func(_, length string) bool { return length == "" }, `
		DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT
		DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_PEER_CERT_V_START DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT EMIT_TIME EMIT_TIME_LOCAL
		RESPONSE_CODE_DETAILS START_TIME START_TIME_LOCAL UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT UPSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START
		UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT`)
	add(func(asked, length string) bool { return asked != "" && length == "" }, "CLUSTER_METADATA UPSTREAM_METADATA")
	add(func(asked, _ string) bool { return asked != "" }, "DYNAMIC_METADATA ENVIRONMENT QUERY_PARAM")
	add(func(asked, _ string) bool { return askedHeader.MatchString(asked) },
		"REQ REQUEST_HEADER RESP RESPONSE_HEADER RESPONSE_TRAILER STREAM_INFO_REQ TRAILER")
	add(func(asked, _ string) bool { return askedState.MatchString(asked) }, "FILTER_STATE UPSTREAM_FILTER_STATE")
	add(func(asked, _ string) bool { return slices.Contains([]string{"", "WQ", "NQ"}, asked) }, "PATH")
	add(func(asked, _ string) bool { return asked == "" }, "QUERY_PARAMS")
	add(func(asked, _ string) bool { return askedMetadata.MatchString(asked) }, "METADATA")
	return out
}()

var (
	askedHeader   = regexp.MustCompile("^:?[!#$%&'*+.^_`|~0-9A-Za-z-]+(\\?:?[!#$%&'*+.^_`|~0-9A-Za-z-]+)?$")
	askedState    = regexp.MustCompile(`^[^:]+(:PLAIN|:TYPED|:FIELD:[^:]+)?$`)
	askedMetadata = regexp.MustCompile(`^(DYNAMIC|CLUSTER|ROUTE|UPSTREAM_HOST|LISTENER|VIRTUAL_HOST):.+$`)
)

// celCommand matches the command CEL, whose argument is an expression. It ends as Envoy ends it.
var celCommand = regexp.MustCompile(`^%CEL\((.*?)\)(:[0-9]{1,9})?%`)

// format says what is wrong with the value of a header, in which Envoy replaces
// commands.
func format(value string) error { return formatOf(value, commands, nil) }

// tagFormat says what is wrong with a format of a tag of spans, which may have CEL, by what is wrong
// with an expression.
func tagFormat(value string, cel func(expression string) error) error {
	return formatOf(value, commands, cel)
}

var logCommands = func() map[string]func(asked, length string) bool {
	out := maps.Clone(commands)
	out["REQ_WITHOUT_QUERY"] = out["REQ"]
	return out
}()

func formatOf(value string, commands map[string]func(asked, length string) bool, cel func(expression string) error) error {
	for rest := value; ; {
		at := strings.IndexByte(rest, '%')
		if at < 0 {
			return nil
		}
		rest = rest[at:]
		if strings.HasPrefix(rest, "%%") {
			rest = rest[len("%%"):]
			continue
		}
		if found := celCommand.FindStringSubmatch(rest); cel != nil && found != nil {
			if err := cel(found[1]); err != nil {
				return fmt.Errorf("has %s, whose expression %w", found[0], err)
			}
			rest = rest[len(found[0]):]
			continue
		}
		found := command.FindStringSubmatch(rest)
		if found == nil {
			return errors.New("has a % that begins no command: write %% for the sign itself")
		}
		takes, known := commands[found[1]]
		switch {
		case !known:
			return fmt.Errorf("has the command %s, which proxies do not know: write %%%% for a sign that begins no command", found[1])
		case !takes(found[2], found[3]):
			return fmt.Errorf("has %s, which is not how the command %s is written", found[0], found[1])
		}
		rest = rest[len(found[0]):]
	}
}
