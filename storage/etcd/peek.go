package etcd

import (
	"bytes"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// RecordTime returns when the batch of a record of history was written, of a
// key under HistoryPrefix. The error is an ErrUndecodable.
func RecordTime(kv *mvccpb.KeyValue) (time.Time, error) {
	body, ok := bytes.CutPrefix(kv.Value, magic)
	if !ok {
		return time.Time{}, undecodable(kv, fmt.Sprintf("it does not begin with %q", magic))
	}
	record := &envelope.Record{}
	if err := proto.Unmarshal(body, record); err != nil {
		return time.Time{}, undecodable(kv, err.Error())
	}
	return time.UnixMilli(record.Time).UTC(), nil
}

// DecodeFormat reads the value of FormatKey; where it cannot be read the Fault
// of the Format says why.
func DecodeFormat(kv *mvccpb.KeyValue) Format { return decodeFormat(kv) }
