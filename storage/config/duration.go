package config

import (
	"bytes"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

const durationName = "google.protobuf.Duration"

// secondsOnly rewrites the durations in a message's JSON. Istio takes any unit (25ms,
// 1h30m), protojson only seconds. Values that do not fit the message stay as they are.
func secondsOnly(md protoreflect.MessageDescriptor, raw json.RawMessage) json.RawMessage {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return raw
	}
	rewritten, err := json.Marshal(secondsOf(md, value))
	if err != nil {
		return raw
	}
	return rewritten
}

// secondsOf rewrites one value whose type is md.
func secondsOf(md protoreflect.MessageDescriptor, value any) any {
	if md.FullName() == durationName {
		if text, ok := value.(string); ok {
			return seconds(text)
		}
		return value
	}
	members, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for name, member := range members {
		fd := fieldByName(md, name)
		if fd == nil || fd.Message() == nil || isWellKnown(fd.Message()) && fd.Message().FullName() != durationName {
			continue
		}
		members[name] = secondsOfField(fd, member)
	}
	return members
}

func secondsOfField(fd protoreflect.FieldDescriptor, value any) any {
	switch typed := value.(type) {
	case []any:
		for i := range typed {
			typed[i] = secondsOf(fd.Message(), typed[i])
		}
		return typed
	case map[string]any:
		if !fd.IsMap() {
			return secondsOf(fd.Message(), typed)
		}
		if fd.MapValue().Message() != nil {
			for key := range typed {
				typed[key] = secondsOf(fd.MapValue().Message(), typed[key])
			}
		}
		return typed
	}
	return secondsOf(fd.Message(), value)
}

// seconds writes a duration as protojson does. Other text stays as it is.
func seconds(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	quoted, err := protojson.Marshal(durationpb.New(d))
	if err != nil {
		return text
	}
	var out string
	if json.Unmarshal(quoted, &out) != nil {
		return text
	}
	return out
}
