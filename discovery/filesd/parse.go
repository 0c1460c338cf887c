package filesd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// The labels that Portolan interprets. Endpoints carry no label with ownPrefix, and none that
// begins with two underscores.
const (
	ownPrefix     = "portolan_"
	labelNS       = ownPrefix + "namespace"
	labelProtocol = ownPrefix + "protocol"
	labelPort     = ownPrefix + "port"
	labelWeight   = ownPrefix + "weight"
	labelName     = ownPrefix + "workload"
	labelAccount  = ownPrefix + "service_account"
	labelNetwork  = "topology.istio.io/network"
)

// group is a list of targets with their labels, in the form of the file.
type group struct {
	Targets []string       `json:"targets"`
	Labels  map[string]any `json:"labels"`
}

// listed is the parsed content of a file. It is never modified.
type listed struct {
	targets []*target
	flaws   []Flaw
	err     error // the file cannot be read as a whole
}

// target is one target, converted. It is never modified.
type target struct {
	key
	group    int // number of its group in the file, from 1
	port     int // port of the service
	protocol discovery.Protocol
	endpoint discovery.Endpoint // without its port's name
}

// key names a service.
type key struct {
	hostname  host.Name
	namespace string
}

// ownLabels lists Portolan's labels apart from Options.ServiceLabel.
var ownLabels = []string{labelNS, labelPort, labelProtocol, labelWeight, labelName, labelAccount}

// Flaw is a fault of a target or of a group of targets.
type Flaw struct {
	File string `json:"file"`
	// Group is the number of the group in the file, from 1. Target is empty if the whole group
	// is at fault.
	Group  int    `json:"group"`
	Target string `json:"target,omitempty"`
	// Reason says what is wrong, and what follows.
	Reason string `json:"reason"`
	// LeftOut is true if the target or group is not in the mesh for that reason.
	LeftOut bool `json:"leftOut"`
}

// String formats the flaw as one line: "targets.yaml: group 2: 10.0.0.1: it has no port".
func (f Flaw) String() string {
	at := fmt.Sprintf("%s: group %d: ", f.File, f.Group)
	if f.Target != "" {
		at += f.Target + ": "
	}
	return at + f.Reason
}

func (o *Options) parse(file string, data []byte) *listed {
	text, err := config.YAMLToJSON(data)
	if err != nil {
		return &listed{err: err}
	}
	var groups []group
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	if err := decoder.Decode(&groups); err != nil {
		return &listed{err: fmt.Errorf("is no list of targets with labels: %w", err)}
	}
	out := &listed{}
	for i, g := range groups {
		at := Flaw{File: file, Group: i + 1, LeftOut: true}
		known, err := g.labels()
		if err != nil {
			return &listed{err: fmt.Errorf("group %d: %w", i+1, err)}
		}
		shared, flaw := o.shared(known)
		if flaw != "" {
			at.Reason = flaw + ": left out"
			out.flaws = append(out.flaws, at)
			continue
		}
		shared.group = i + 1
		out.flaws = append(out.flaws, o.unknownLabels(known, at)...)
		for _, text := range g.Targets {
			one, err := shared.at(text)
			if err != nil {
				at.Target, at.Reason = text, err.Error()+": left out"
				out.flaws = append(out.flaws, at)
				continue
			}
			out.targets = append(out.targets, one)
		}
	}
	return out
}

// labels returns the labels of the group, with numbers and booleans as text.
func (g *group) labels() (labels.Instance, error) {
	out := make(labels.Instance, len(g.Labels))
	for name, value := range g.Labels {
		switch value := value.(type) {
		case string:
			out[name] = value
		case json.Number:
			out[name] = value.String()
		case bool:
			out[name] = strconv.FormatBool(value)
		default:
			return nil, fmt.Errorf("label %s is no text", strconv.Quote(name))
		}
	}
	return out, nil
}

// unknownLabels returns a flaw for each label of a group that has Portolan's prefix but that
// Portolan does not know.
func (o *Options) unknownLabels(of labels.Instance, at Flaw) (out []Flaw) {
	known := append([]string{o.ServiceLabel}, ownLabels...)
	at.LeftOut = false
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !strings.HasPrefix(name, ownPrefix) || slices.Contains(known, name) {
			continue
		}
		at.Reason = fmt.Sprintf("label %s is not known: it has no effect, and is no label of the endpoints", name)
		switch meant := spelling.Nearest(name, known); {
		case name == DefaultServiceLabel:
			at.Reason += ": the service is named by the label " + o.ServiceLabel
		case meant != "":
			at.Reason += ": did you mean " + meant + "?"
		}
		out = append(out, at)
	}
	return out
}

// shared returns a target with all that a group's labels say, or the flaw of the labels.
func (o *Options) shared(common labels.Instance) (t target, flaw string) {
	name := strings.ToLower(strings.TrimSuffix(common[o.ServiceLabel], "."))
	if name == "" {
		return t, "no label " + o.ServiceLabel + " names a service"
	}
	if !strings.Contains(name, ".") {
		name += "." + o.Domain
	}
	t.hostname, t.namespace = host.Name(name), cmp.Or(common[labelNS], o.Namespace)
	t.protocol = discovery.TCP
	weight := uint64(1)
	var err error
	if text := common[labelPort]; text != "" {
		if t.port, err = portOf(text); err != nil {
			return t, labelPort + ": " + err.Error()
		}
	}
	if text := common[labelWeight]; text != "" {
		if weight, err = strconv.ParseUint(text, 10, 32); err != nil || weight == 0 {
			return t, fmt.Sprintf("%s: %q is no number from 1 on", labelWeight, text)
		}
	}
	if text := common[labelProtocol]; text != "" {
		if t.protocol = discovery.ParseProtocol(text); t.protocol == discovery.Unsupported {
			return t, fmt.Sprintf("%s: %q is not known", labelProtocol, text)
		}
	}
	switch {
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return t, fmt.Sprintf("%s: %q is no host name", o.ServiceLabel, name)
	case common.CheckTLSMode() != nil:
		return t, labels.TLSMode + ": " + common.CheckTLSMode().Error()
	case !isNamespace(t.namespace):
		return t, fmt.Sprintf("%s: %q is no DNS label", labelNS, t.namespace)
	}
	own := maps.Clone(common)
	maps.DeleteFunc(own, func(name, _ string) bool {
		return name == o.ServiceLabel || strings.HasPrefix(name, ownPrefix) || strings.HasPrefix(name, "__")
	})
	t.endpoint = discovery.Endpoint{
		Labels: own, Weight: uint32(weight), TLSMode: cmp.Or(own[labels.TLSMode], discovery.TLSModeDisabled), ServiceAccount: discovery.SPIFFE(o.TrustDomain, t.namespace, common[labelAccount]), Network: own[labelNetwork],
		Locality:  discovery.Locality{Label: discovery.LocalityOfLabels(own), Cluster: o.Cluster},
		Namespace: t.namespace, WorkloadName: common[labelName],
	}
	return t, ""
}

// at returns the target at HOST:PORT, or at HOST if a label gives the port.
func (t target) at(text string) (*target, error) {
	address, port, err := net.SplitHostPort(text)
	switch {
	case err == nil:
		if t.endpoint.Port, err = portOf(port); err != nil {
			return nil, err
		}
	case t.port != 0:
		address, t.endpoint.Port = strings.Trim(text, "[]"), t.port
	default:
		return nil, errors.New("it has no port, as HOST:PORT has")
	}
	if t.port == 0 {
		t.port = t.endpoint.Port
	}
	t.endpoint.Address = strings.ToLower(strings.TrimSuffix(address, "."))
	if ip, err := netip.ParseAddr(address); err == nil {
		t.endpoint.Address = ip.Unmap().String()
	} else if len(validation.IsDNS1123Subdomain(t.endpoint.Address)) > 0 {
		return nil, errors.New("it is no IP address and no host name")
	}
	return &t, nil
}

// isName says whether the address is a host name, which proxies must resolve.
func (t *target) isName() bool {
	_, err := netip.ParseAddr(t.endpoint.Address)
	return err != nil
}

func portOf(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return int(n), nil
}

// grouped returns the targets by service, in the order of the files.
func grouped(files []*listed) map[key][]*target {
	out := map[key][]*target{}
	for _, file := range files {
		for _, t := range file.targets {
			out[t.key] = append(out[t.key], t)
		}
	}
	return out
}

// same says whether two lists of targets are equal.
func same(a, b []*target) bool {
	return slices.EqualFunc(a, b, func(a, b *target) bool {
		return a == b || a.key == b.key && a.port == b.port && a.protocol == b.protocol && a.endpoint.Equal(&b.endpoint)
	})
}
