package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// SealingFile is the name of the file of sealing keys in the directory of an embedded store.
const SealingFile = "sealing.key"

// sealingKeys returns the file of the server's sealing keys, empty for none.
func (o *Options) sealingKeys() string {
	if o.SealingKey == "" && o.Embedded != nil {
		return filepath.Join(o.Embedded.DataDir, SealingFile)
	}
	return o.SealingKey
}

// secrets manages the sealing of the store's secrets. It is a prometheus.Collector.
type secrets struct {
	sealer *sealing.Sealer
	store  *etcd.Store
	// snapshot returns the snapshot of the store's objects, nil before it is read.
	snapshot func() *cache.Snapshot
	// others returns the secrets beside the store that proxies use.
	others func() []*config.Config
}

// Degraded says which secrets the server cannot open, and why; nil if it can open all.
func (s secrets) Degraded() error {
	if err := s.sealer.Ready(); err != nil {
		return err
	}
	unopened := s.unopened()
	if len(unopened) == 0 {
		return nil
	}
	return fmt.Errorf("%d secrets cannot be opened, and are not served: %s", len(unopened), shortList(unopened))
}

// shortList lists the first few names, and how many more there are.
func shortList(all []string) string {
	const most = 3
	text := strings.Join(all[:min(len(all), most)], "; ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// all returns the secrets of the store, in order.
func (s secrets) all() []*config.Config {
	snapshot := s.snapshot()
	if snapshot == nil {
		return nil
	}
	return slices.Collect(snapshot.List(schema.Secret, ""))
}

// unopened returns the secrets whose sealing key this server does not have.
func (s secrets) unopened() (out []string) {
	ring := s.sealer.Ring()
	for _, object := range s.all() {
		if box := boxOf(object); box == nil {
			out = append(out, object.Key().String()+": it has no data")
		} else if !ring.Has(box.Key) {
			out = append(out, fmt.Sprintf("%s: %v", object.Key(), &seal.UnknownKeyError{ID: box.Key}))
		}
	}
	return out
}

func boxOf(object *config.Config) *seal.Box {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Sealed == nil {
		return nil
	}
	return spec.Sealed.Box
}

// SealingStatus implements maintenance.Sealing.
func (s secrets) SealingStatus(ctx context.Context) (maintenance.SealingStatus, error) {
	out := maintenance.SealingStatus{Keys: s.sealer.Ring().IDs(), File: s.sealer.File(), Secrets: map[string]int{}, Unopened: s.unopened()}
	for _, object := range s.all() {
		if box := boxOf(object); box != nil {
			out.Secrets[box.Key]++
		}
	}
	if err := s.sealer.Ready(); err != nil {
		out.Problem = err.Error()
	}
	var err error
	out.Key, err = s.sealer.Current(ctx)
	return out, err
}

// SealingKeys implements maintenance.Sealing.
func (s secrets) SealingKeys() string { return string(s.sealer.Ring().Text()) }

// AddSealingKeys implements maintenance.Sealing.
func (s secrets) AddSealingKeys(text string) ([]string, error) {
	if text != "" {
		return s.sealer.Import([]byte(text))
	}
	id, err := s.sealer.AddKey()
	return []string{id}, err
}

// Reseal implements maintenance.Sealing. A secret that somebody writes in the meantime is
// sealed by that write.
func (s secrets) Reseal(ctx context.Context, key string, lost bool) (out maintenance.Resealing, err error) {
	ids := s.sealer.Ring().IDs()
	if key == "" && len(ids) > 0 {
		key = ids[len(ids)-1]
	}
	if key == "" {
		return out, fmt.Errorf("%w: this server has no sealing key: make one with portolan secret key add", storage.ErrInvalid)
	}
	if err := s.sealer.Use(ctx, key, lost); err != nil {
		return out, err
	}
	out.Key = key
	for _, object := range s.all() {
		stored, err := s.store.Get(ctx, schema.Secret, object.Name, object.Namespace)
		changed := false
		if err == nil {
			stored, changed, err = s.sealer.Reseal(ctx, stored)
		}
		if err == nil && changed {
			_, err = s.store.Update(ctx, stored)
		}
		switch {
		case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrConflict):
		case err != nil:
			out.Left = append(out.Left, err.Error())
		case changed:
			out.Resealed++
		}
	}
	return out, nil
}

// SecretData implements maintenance.Sealing.
func (s secrets) SecretData(namespace, name string) (map[string][]byte, error) {
	key := config.Key{Kind: schema.Secret, Namespace: namespace, Name: name}
	snapshot := s.snapshot()
	if snapshot == nil {
		return nil, fmt.Errorf("%w: the configuration is not read yet", storage.ErrUnavailable)
	}
	object := snapshot.Get(key)
	if object == nil {
		return nil, fmt.Errorf("%s: %w", key, storage.ErrNotFound)
	}
	data, err := s.sealer.Open(object)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: see portolan secret status", storage.ErrUnavailable, err)
	}
	return data, nil
}

// expiry is the metric of when the certificates in each entry of a secret expire; the first of
// them counts.
var expiry = prometheus.NewDesc("portolan_certificate_expiry_seconds",
	"Seconds until the first certificate in an entry of a secret ends; negative once it has.", []string{"namespace", "name", "entry"}, nil)

// Describe implements prometheus.Collector.
func (s secrets) Describe(out chan<- *prometheus.Desc) { out <- expiry }

// Collect implements prometheus.Collector.
func (s secrets) Collect(out chan<- prometheus.Metric) {
	for _, object := range slices.Concat(s.all(), s.others()) {
		spec, ok := object.Spec.(*secret.Spec)
		if !ok || spec.Sealed == nil {
			continue
		}
		first := map[string]time.Time{}
		var entries []string
		for _, c := range spec.Sealed.Certificates {
			last, known := first[c.Entry]
			if !known {
				entries = append(entries, c.Entry)
			}
			if !known || c.NotAfter.Before(last) {
				first[c.Entry] = c.NotAfter
			}
		}
		for _, entry := range entries {
			out <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, time.Until(first[entry]).Seconds(), object.Namespace, object.Name, entry)
		}
	}
}
