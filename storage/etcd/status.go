package etcd

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// What servers say of objects and of proxies. Nothing that is generated depends
// on it. The values are messages of package envelope behind the magic.
const (
	// ObjectStatusPrefix is that of what is said of objects, by the Path of their
	// keys; ReplicaPrefix of the reports of servers, by their ids, each under a lease
	// of the server; ProxyPrefix of the proxies that are known, by node id.
	ObjectStatusPrefix = StatusPrefix + "config/"
	ReplicaPrefix      = StatusPrefix + "replica/"
	ProxyPrefix        = StatusPrefix + "proxy/"
)

// ObjectStatusKey returns the key of what is said of an object.
func ObjectStatusKey(key config.Key) string { return ObjectStatusPrefix + key.Path() }

// ReplicaKey returns the key of the report of a server.
func ReplicaKey(id string) string { return ReplicaPrefix + url.PathEscape(id) }

// ProxyKey returns the key of a proxy.
func ProxyKey(node string) string { return ProxyPrefix + url.PathEscape(node) }

// EncodeStatus returns the value of what is said of an object.
func EncodeStatus(r *status.Report) ([]byte, error) {
	out := &envelope.Status{
		Group: r.Key.Kind.Group, Kind: r.Key.Kind.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name,
		Uid: r.UID, Revision: r.Object, Generation: r.Generation,
	}
	for _, c := range r.Conditions {
		out.Conditions = append(out.Conditions, &envelope.Condition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.Since.UnixNano(),
		})
	}
	return closeMessage(out)
}

// DecodeStatus returns what is said of an object by a key and value under
// ObjectStatusPrefix, with the mod revision. The error is an ErrForeignKey or an
// ErrUndecodable.
func DecodeStatus(kv *mvccpb.KeyValue, schemas schema.Set) (*status.Report, error) {
	path, ok := strings.CutPrefix(string(kv.Key), ObjectStatusPrefix)
	if !ok {
		return nil, foreign(string(kv.Key), "it is not under "+ObjectStatusPrefix)
	}
	key, err := ParseConfigKey(ConfigPrefix+path, schemas)
	if err != nil {
		return nil, err
	}
	value := &envelope.Status{}
	if err := openMessage(kv, value); err != nil {
		return nil, err
	}
	if value.Group != key.Kind.Group || value.Kind != key.Kind.Kind || value.Namespace != key.Namespace || value.Name != key.Name {
		return nil, undecodable(kv, fmt.Sprintf("it is the status of another object: %s/%s %s/%s",
			value.Group, value.Kind, value.Namespace, value.Name))
	}
	out := &status.Report{
		Key: key, UID: value.Uid, Object: value.Revision, Generation: value.Generation, Revision: kv.ModRevision,
	}
	for _, c := range value.Conditions {
		out.Conditions = append(out.Conditions, status.Condition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: instant(c.Since),
		})
	}
	return out, nil
}

// EncodeReplica returns the value of the report of a server.
func EncodeReplica(r *status.Replica) ([]byte, error) {
	out := &envelope.Replica{Id: r.ID, Proxies: int64(r.Proxies)}
	for _, c := range r.Changes {
		out.Changes = append(out.Changes, &envelope.Change{From: c.From, To: c.To, Alone: countOf(c.Alone), All: countOf(c.All)})
	}
	for _, t := range r.Troubles {
		out.Troubles = append(out.Troubles, &envelope.Trouble{
			Node: t.Node, Type: t.Type, Revision: t.Revision, Since: t.Since.UnixNano(),
			Rejected: t.Rejected, RejectedRevision: t.RejectedRevision, Message: strings.ToValidUTF8(t.Message, "�"), Objects: t.Objects,
		})
	}
	return closeMessage(out)
}

func countOf(c status.Count) *envelope.Count {
	return &envelope.Count{
		Accepted: int64(c.Accepted), NotConcerned: int64(c.NotConcerned), Rejected: int64(c.Rejected), Waiting: int64(c.Waiting),
	}
}

// DecodeReplica returns the report of a server by a key and value under
// ReplicaPrefix. The error is an ErrForeignKey or an ErrUndecodable.
func DecodeReplica(kv *mvccpb.KeyValue) (*status.Replica, error) {
	value := &envelope.Replica{}
	if err := openMessage(kv, value); err != nil {
		return nil, err
	}
	if ReplicaKey(value.Id) != string(kv.Key) {
		return nil, undecodable(kv, fmt.Sprintf("it is the report of another server: %s", value.Id))
	}
	out := &status.Replica{ID: value.Id, Proxies: int(value.Proxies)}
	for _, c := range value.Changes {
		out.Changes = append(out.Changes, status.Change{From: c.From, To: c.To, Alone: readCount(c.Alone), All: readCount(c.All)})
	}
	for _, t := range value.Troubles {
		out.Troubles = append(out.Troubles, status.Trouble{
			Node: t.Node, Type: t.Type, Revision: t.Revision, Since: instant(t.Since),
			Rejected: t.Rejected, RejectedRevision: t.RejectedRevision, Message: t.Message, Objects: t.Objects,
		})
	}
	return out, nil
}

func readCount(c *envelope.Count) status.Count {
	return status.Count{
		Accepted: int(c.GetAccepted()), NotConcerned: int(c.GetNotConcerned()), Rejected: int(c.GetRejected()), Waiting: int(c.GetWaiting()),
	}
}

// EncodeProxy returns the value of a known proxy.
func EncodeProxy(p *status.Proxy) ([]byte, error) {
	return closeMessage(&envelope.KnownProxy{Node: p.Node, Replica: p.Replica, Seen: p.Seen.UnixNano()})
}

// DecodeProxy returns a known proxy by a key and value under ProxyPrefix, with the
// mod revision. The error is an ErrForeignKey or an ErrUndecodable.
func DecodeProxy(kv *mvccpb.KeyValue) (*status.Proxy, error) {
	value := &envelope.KnownProxy{}
	if err := openMessage(kv, value); err != nil {
		return nil, err
	}
	if ProxyKey(value.Node) != string(kv.Key) {
		return nil, undecodable(kv, fmt.Sprintf("it is the value of another proxy: %s", value.Node))
	}
	return &status.Proxy{Node: value.Node, Replica: value.Replica, Seen: instant(value.Seen), Revision: kv.ModRevision}, nil
}

// instant is the time of nanoseconds since the epoch.
func instant(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }
