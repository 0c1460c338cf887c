package reliability

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The objects of a run. Single objects are services without rules; each is created, changed and
// deleted alone. A group is a service, its rule and its route; they are written together, with
// one value. The gateway does not change.
const (
	singles, groupsNumber = 8, 3
	singleNamespace       = "single"
	groupNamespace        = "group"
	gatewayPort           = 8080
	// annotation carries the value of an object.
	annotation = "reliability.test/value"
)

// kindOfKey returns a kind by its name in a Key.
func kindOfKey(name string) config.GroupVersionKind {
	switch name {
	case "DestinationRule":
		return schema.DestinationRule
	case "VirtualService":
		return schema.VirtualService
	case "Gateway":
		return schema.Gateway
	}
	return schema.ServiceEntry
}

// Scopes returns the scopes of the keys of a run.
func Scopes() []string {
	return []string{"ServiceEntry/" + singleNamespace, "ServiceEntry/" + groupNamespace,
		"DestinationRule/" + groupNamespace, "VirtualService/" + groupNamespace, "Gateway/" + groupNamespace}
}

// Singles returns the keys of the objects that are written alone.
func Singles() (out []Key) {
	for i := range singles {
		out = append(out, Key(fmt.Sprintf("ServiceEntry/%s/s%d", singleNamespace, i)))
	}
	return out
}

// Groups returns the keys of the objects that are written together.
func Groups() (out [][]Key) {
	for i := range groupsNumber {
		name := fmt.Sprintf("%s/g%d", groupNamespace, i)
		out = append(out, []Key{Key("ServiceEntry/" + name), Key("DestinationRule/" + name), Key("VirtualService/" + name)})
	}
	return out
}

// GatewayKey is the key of the gateway of the routes.
const GatewayKey = Key("Gateway/" + groupNamespace + "/edge")

// KeyOf returns the Key of an object.
func KeyOf(key config.Key) Key { return Key(key.Kind.Kind + "/" + key.Namespace + "/" + key.Name) }

// Config returns the key as the store has it.
func (k Key) Config() config.Key {
	parts := strings.SplitN(string(k), "/", 3)
	return config.Key{Kind: kindOfKey(parts[0]), Namespace: parts[1], Name: parts[2]}
}

// hostOf returns the host of the service with the name of a key.
func hostOf(key config.Key) string { return key.Name + "." + key.Namespace + ".test" }

// Object returns the object of a key with a value: in an annotation, and in the resources of
// proxies.
func Object(k Key, value int64) *config.Config {
	key := k.Config()
	out := &config.Config{Meta: config.Meta{
		GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name,
		Annotations: map[string]string{annotation: strconv.FormatInt(value, 10)},
	}}
	host := hostOf(key)
	switch key.Kind.Kind {
	case "ServiceEntry":
		out.Spec = &networking.ServiceEntry{
			Hosts: []string{host}, Resolution: networking.ServiceEntry_STATIC, Location: networking.ServiceEntry_MESH_INTERNAL,
			Ports:     []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
			Endpoints: []*networking.WorkloadEntry{{Address: address(value)}},
		}
	case "DestinationRule":
		out.Spec = &networking.DestinationRule{Host: host, TrafficPolicy: &networking.TrafficPolicy{
			ConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: int32(value)}},
		}}
	case "VirtualService":
		out.Spec = &networking.VirtualService{Hosts: []string{host}, Gateways: []string{GatewayKey.Config().Name}, Http: []*networking.HTTPRoute{{
			Timeout: durationpb.New(time.Duration(value) * time.Millisecond),
			Route:   []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: host, Port: &networking.PortSelector{Number: 80}}}},
		}}}
	case "Gateway":
		out.Spec = &networking.Gateway{Selector: map[string]string{"app": "edge"}, Servers: []*networking.Server{{
			Hosts: []string{"*"}, Port: &networking.Port{Number: gatewayPort, Name: "http", Protocol: "HTTP"},
		}}}
	}
	return out
}

// ValueOf returns the value in an object's annotations, -1 if there is none.
func ValueOf(annotations map[string]string) int64 {
	value, err := strconv.ParseInt(annotations[annotation], 10, 64)
	if err != nil {
		return -1
	}
	return value
}

// address encodes a value as an address of 10.0.0.0/8.
func address(value int64) string {
	return fmt.Sprintf("10.%d.%d.%d", value>>16&255, value>>8&255, value&255)
}

// valueOfAddress is the inverse of address.
func valueOfAddress(text string) int64 {
	var a, b, c int64
	if n, err := fmt.Sscanf(text, "10.%d.%d.%d", &a, &b, &c); err != nil || n != 3 {
		return -1
	}
	return a<<16 | b<<8 | c
}
