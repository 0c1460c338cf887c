package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// reportTimeout bounds how long a report waits for the store.
const reportTimeout = 5 * time.Second

// reporter reports the state of a server's store.
type reporter struct{ server *server }

// StoreStatus implements maintenance.Reporter.
func (r *reporter) StoreStatus(ctx context.Context) maintenance.Status {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	r.awaitFirst(ctx)
	status := maintenance.Status{
		Server: r.self(), Cache: r.cache(), Registries: registryStatuses(r.server.registry.Registries()),
		Sources: objectSources(r.server.sourceList()), Quarantined: r.server.mirror.Quarantine().Len(),
	}
	for _, err := range []error{r.server.security.unreachable(), r.server.secrets.Degraded()} {
		if err != nil {
			status.Problems = append(status.Problems, err.Error())
		}
	}
	store, err := r.store(ctx)
	status.Store = store
	if err != nil {
		status.Problems = append(status.Problems, "the store does not answer: "+err.Error())
	} else {
		status.Jobs = r.jobs(ctx)
	}
	status.Backup, status.Certificates = r.backup(), r.certificates()
	status.Problems = append(status.Problems, problems(status)...)
	if r.server.store.certificate != nil {
		if err := r.server.store.certified(); err != nil {
			status.Problems = append(status.Problems, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return status
}

// startTime is how long a report waits for a server that has just started to read its store.
const startTime = 2 * time.Second

// awaitFirst waits until the server has read its store once.
func (r *reporter) awaitFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for !r.server.mirror.HasSynced() && retry.Sleep(ctx, 20*time.Millisecond) == nil {
	}
}

// certificates returns when the certificates of the member expire, as far as they can be read.
func (r *reporter) certificates() *maintenance.CertificatesStatus {
	if r.server.store.certificate == nil {
		return nil
	}
	e, err := r.server.store.certificate.Expiry()
	if err != nil {
		return nil
	}
	return &maintenance.CertificatesStatus{Member: e.Certificate.UTC(), Authority: e.Authority.UTC()}
}

// backup describes the last scheduled backup.
func (r *reporter) backup() *maintenance.BackupStatus {
	if r.server.store.backups == nil {
		return nil
	}
	last := r.server.store.backups.Last()
	s := &maintenance.BackupStatus{Time: last.Time, File: last.File, Revision: last.Revision}
	if last.Err != nil {
		s.Error = last.Err.Error()
	}
	return s
}

func (r *reporter) self() maintenance.ServerStatus {
	host, _ := os.Hostname() // empty where the system does not know
	s := maintenance.ServerStatus{Version: r.server.o.Version, Host: host, PID: os.Getpid(), Store: maintenance.External}
	if r.server.o.Embedded != nil {
		s.Store, s.DataDir = maintenance.Embedded, r.server.o.Embedded.DataDir
	}
	return s
}

func (r *reporter) cache() maintenance.CacheStatus {
	mirror := r.server.mirror
	s := maintenance.CacheStatus{StalenessSeconds: mirror.Staleness().Seconds()}
	if snapshot := mirror.Snapshot(); snapshot != nil {
		s.Revision, s.Objects = snapshot.Revision(), snapshot.Configs().Len()
	}
	if err := mirror.Degraded(); err != nil {
		s.Degraded = err.Error()
	}
	return s
}

// registryStatuses returns how fresh the served content of each registry is.
func registryStatuses(registries []discovery.Instance) []maintenance.RegistryStatus {
	var out []maintenance.RegistryStatus
	for _, registry := range registries {
		name := string(registry.Provider())
		if registry.Provider() == discovery.External {
			name = schema.ServiceEntry.Kind
		}
		reporter, ok := registry.(discovery.SourceReporter)
		if !ok {
			one := maintenance.RegistryStatus{Name: name, State: string(discovery.SourceLive), Services: len(registry.Services())}
			if !registry.HasSynced() {
				one.State = string(discovery.SourceSyncing)
			}
			out = append(out, one)
			continue
		}
		for _, s := range reporter.SourceStatuses() {
			one := maintenance.RegistryStatus{Name: name, State: string(s.State), AsOf: s.AsOf, Services: s.Services, Problem: s.Problem}
			if s.Name != "" {
				one.Name += "/" + s.Name
			}
			out = append(out, one)
		}
	}
	return out
}

// objectSources returns the sources of objects but the store. Those of services are registries.
func objectSources(list SourceList) (out []maintenance.SourceStatus) {
	for i := range list.Items {
		of := &list.Items[i]
		if of.Writable || of.Endpoints != nil || of.Absent {
			continue
		}
		out = append(out, maintenance.SourceStatus{Name: of.Name, Kind: of.Kind, Objects: of.ObjectCount(), Problem: of.Problem, Refused: of.Refused})
	}
	return out
}

// store queries the store, as far as it answers.
func (r *reporter) store(ctx context.Context) (*maintenance.StoreStatus, error) {
	identity, err := etcd.ReadInstance(ctx, r.server.store.client)
	if err != nil {
		return nil, err
	}
	s := &maintenance.StoreStatus{
		Cluster: fmt.Sprintf("%x", identity.Cluster), Instance: identity.ID, Revision: identity.Revision,
	}
	if keeper := r.server.store.keeper; keeper != nil {
		if space := keeper.Space(); space != nil {
			s.FreeBytes = space.Free
		}
		if k := keeper.Status(); k != nil {
			s.DBBytes, s.DBInUseBytes, s.QuotaBytes = k.Size, k.InUse, k.Quota
			s.Compacted, s.Alarms = k.Compacted, k.Alarms
		}
	}
	if roster := r.server.store.members; roster != nil {
		view, err := roster.Look(ctx)
		if err != nil {
			return s, err
		}
		for i := range view.Members {
			s.Members = append(s.Members, memberStatus(&view.Members[i]))
		}
	}
	return s, nil
}

func memberStatus(m *cluster.Member) maintenance.StoreMember {
	status := m.Status()
	s := maintenance.StoreMember{
		ID: cluster.FormatID(m.ID), Name: m.Name, Learner: m.Learner, Leader: status == cluster.Leader,
	}
	if m.Answer != nil {
		s.Version, s.DBBytes, s.Index = m.Answer.Version, m.Answer.Size, m.Answer.Applied
	} else if m.Err != nil {
		s.Error = string(status) + ": " + m.Err.Error()
	}
	return s
}

// jobs returns the elections with their leaders. There may be no leader for a moment.
func (r *reporter) jobs(ctx context.Context) []maintenance.JobStatus {
	leader, err := r.server.jobs.Leader(ctx)
	if err != nil && !errors.Is(err, election.ErrNoLeader) {
		return nil
	}
	return []maintenance.JobStatus{{Name: electionName, Leader: leader.ID}}
}

// problems lists what needs an operator's attention.
func problems(s maintenance.Status) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.Cache.Degraded != "" {
		add("cache: %s", s.Cache.Degraded)
	}
	for _, one := range s.Registries {
		if one.Problem != "" {
			add("registry %s: %s", one.Name, one.Problem)
		}
	}
	for _, one := range s.Sources {
		if one.Problem != "" {
			add("source %s: %s", one.Name, one.Problem)
		}
		if err := refusedIn(one.Name, one.Refused); err != nil {
			add("%v", err)
		}
	}
	if s.Quarantined > 0 {
		add("%d keys in the store cannot be served: see portolan store quarantine list", s.Quarantined)
	}
	if s.Backup != nil && s.Backup.Error != "" {
		add("the last backup failed: %s", s.Backup.Error)
	}
	if s.Store == nil {
		return out
	}
	for _, alarm := range s.Store.Alarms {
		add("etcd has raised the alarm %s", alarm)
	}
	if q := s.Store.QuotaBytes; q > 0 && s.Store.DBBytes > q/5*4 {
		add("the store fills %d %% of its quota", s.Store.DBBytes*100/q)
	}
	for _, m := range s.Store.Members {
		if m.Error != "" {
			add("member %s: %s", m.Name, m.Error)
		}
	}
	return out
}
