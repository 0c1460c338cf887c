package etcd

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/health"
)

// The keys and values of the trees beside the configuration. A key is
// <prefix><namespace>/<name>, and a value is a message of package envelope.

// AddressKey returns the key of the addresses of a host.
func AddressKey(namespace, host string) string { return AddressPrefix + address.Path(namespace, host) }

// HealthKey returns the key of the report on a WorkloadEntry.
func HealthKey(namespace, name string) string { return HealthPrefix + health.Path(namespace, name) }

// parseBeside reads a key of a tree beside the configuration. The error is an
// ErrForeignKey.
func parseBeside(key, prefix string) (namespace, name string, err error) {
	path, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", "", foreign(key, "it is not under "+prefix)
	}
	namespace, name, _ = strings.Cut(path, "/")
	if !validPart(namespace) || !validPart(name) {
		return "", "", foreign(key, "it does not have the form namespace/name")
	}
	return namespace, name, nil
}

// DecodeAddress decodes the addresses of a host, of a key under AddressPrefix. Their
// revision is the one that created the key; a change of the owners does not move it.
// The error is an ErrForeignKey or an ErrUndecodable.
func DecodeAddress(kv *mvccpb.KeyValue) (*address.Assignment, error) {
	value, err := openAddress(kv)
	if err != nil {
		return nil, err
	}
	out := &address.Assignment{Namespace: value.Namespace, Host: value.Host, Revision: kv.CreateRevision}
	if out.IPv4, err = netip.ParseAddr(value.Ipv4); err != nil || !out.IPv4.Is4() {
		return nil, undecodable(kv, fmt.Sprintf("%q is not an IPv4 address", value.Ipv4))
	}
	if out.IPv6, err = netip.ParseAddr(value.Ipv6); err != nil || !out.IPv6.Is6() {
		return nil, undecodable(kv, fmt.Sprintf("%q is not an IPv6 address", value.Ipv6))
	}
	return out, nil
}

// openAddress reads a value under AddressPrefix.
func openAddress(kv *mvccpb.KeyValue) (*envelope.Address, error) {
	namespace, host, err := parseBeside(string(kv.Key), AddressPrefix)
	if err != nil {
		return nil, err
	}
	value := &envelope.Address{}
	if err := open(kv, value); err != nil {
		return nil, err
	}
	if value.Namespace != namespace || value.Host != host {
		return nil, undecodable(kv, fmt.Sprintf("it is the value of another host: %s/%s", value.Namespace, value.Host))
	}
	return value, nil
}

// DecodeHealth decodes the report on a WorkloadEntry, of a key under HealthPrefix, with
// its mod revision. The error is an ErrForeignKey or an ErrUndecodable.
func DecodeHealth(kv *mvccpb.KeyValue) (*health.Report, error) {
	namespace, name, err := parseBeside(string(kv.Key), HealthPrefix)
	if err != nil {
		return nil, err
	}
	value := &envelope.Health{}
	if err := open(kv, value); err != nil {
		return nil, err
	}
	if value.Namespace != namespace || value.Name != name {
		return nil, undecodable(kv, fmt.Sprintf("it is the value of another WorkloadEntry: %s/%s", value.Namespace, value.Name))
	}
	return reportOf(value, kv.ModRevision), nil
}

func reportOf(h *envelope.Health, revision int64) *health.Report {
	return &health.Report{
		Namespace: h.Namespace, Name: h.Name, UID: h.Uid, Healthy: h.Healthy, Unknown: h.Unknown, Reason: h.Reason, Message: h.Message,
		Since: time.Unix(0, h.Since).UTC(), Probed: time.Unix(0, h.Probed).UTC(), Revision: revision,
	}
}
