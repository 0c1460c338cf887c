package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// reported is an API on an etcd of its own, with servers' reports on objects.
type reported struct {
	*resttest.Server
	client *clientv3.Client
	cache  *stoppable
}

// stoppable is a cache that can be stopped: it then gets no changes.
type stoppable struct {
	*statuses.Cache
	stopped atomic.Pointer[cache.Snapshot]
}

func (c *stoppable) Snapshot() *cache.Snapshot {
	if s := c.stopped.Load(); s != nil {
		return s
	}
	return c.Cache.Snapshot()
}

func (c *stoppable) Await(ctx context.Context, revision int64) (*cache.Snapshot, error) {
	if s := c.stopped.Load(); s != nil && s.Revision() < revision {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.Cache.Await(ctx, revision)
}

func withReports(t *testing.T) reported {
	t.Helper()
	e := resttest.StartEtcd(t, etcd.Options{})
	stoppable := &stoppable{Cache: e.Statuses}
	return reported{resttest.Start(t, 0, func(o *rest.Options) { o.Store, o.Cache, o.History = e.Store, stoppable, e.Store }), e.Client, stoppable}
}

// served is the part of an object that these tests check.
type servedObject struct {
	Metadata struct{ UID, ResourceVersion string }
	Status   struct {
		Conditions         []struct{ Type, Status, Reason, Message string }
		ObservedGeneration json.Number
	}
}

func (s reported) object(t *testing.T, path string) servedObject {
	t.Helper()
	var out servedObject
	answer := s.Do(t, http.MethodGet, path, "")
	if err := json.Unmarshal([]byte(answer.Body), &out); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", answer.Code, err, answer.Body)
	}
	return out
}

// writeReport writes a report on an object, and returns once the API shows it.
func (s reported) writeReport(t *testing.T, path string, kind config.GroupVersionKind, name, message string) servedObject {
	t.Helper()
	before, key := s.object(t, path), config.Key{Kind: kind, Namespace: "shop", Name: name}
	stored, err := s.client.Get(t.Context(), etcd.ConfigKey(key))
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("%s: %v, %+v", etcd.ConfigKey(key), err, stored)
	}
	value, err := etcd.EncodeStatus(&status.Report{
		Key: key, UID: before.Metadata.UID, Object: stored.Kvs[0].ModRevision, Generation: 1,
		Conditions: []status.Condition{{Type: status.Programmed, Status: status.True, Reason: "R", Message: message, Since: time.Unix(1, 0)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.client.Put(t.Context(), etcd.ObjectStatusKey(key), string(value))
	if err != nil {
		t.Fatal(err)
	}
	after := s.object(t, path+"?resourceVersion="+strconv.FormatInt(answer.Header.Revision, 10))
	if after.Metadata.ResourceVersion != strconv.FormatInt(answer.Header.Revision, 10) {
		t.Errorf("the version is %s after a report at %d", after.Metadata.ResourceVersion, answer.Header.Revision)
	}
	return after
}

// TestReportsOfAnEarlierWriteAreNotShown: right after a write its object has the
// conditions of that write, as far as they are known, and none of the one before.
func TestReportsOfAnEarlierWriteAreNotShown(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	s.Do(t, http.MethodPost, shopEntries, entry("a", ""))
	path := shopEntries + "/a"
	s.writeReport(t, path, schema.ServiceEntry, "a", "of the first")
	if answer := s.Do(t, http.MethodPut, path, strings.Replace(entry("a", ""), "80", "81", 1)); answer.Code != http.StatusOK {
		t.Fatal(answer.Body)
	}
	got := s.object(t, path).Status
	if c := got.Conditions; len(c) != 3 || c[0].Type != "Accepted" || c[0].Status != "True" || c[2].Type != "Reconciling" || c[2].Status != "True" ||
		c[1].Type != "Programmed" || c[1].Status != "Unknown" || c[1].Reason != "Reconciling" || strings.Contains(c[1].Message, "of the first") {
		t.Errorf("after the second write: %+v", c)
	}
	if got.ObservedGeneration != "2" {
		t.Errorf("observedGeneration %s, want 2", got.ObservedGeneration)
	}
	if got := s.writeReport(t, path, schema.ServiceEntry, "a", "of the second").Status.Conditions; len(got) != 1 || got[0].Message != "of the second" {
		t.Errorf("after its report: %+v", got)
	}
}

// TestReportsMoveTheVersion: reports are part of the status, beside its other parts, and
// change the version.
func TestReportsMoveTheVersion(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	s.Do(t, http.MethodPost, workloads, workload("w", "", ""))
	answer := s.Do(t, http.MethodPut, workloads+"/w/status", workload("w", "", condition("True", "")))
	if answer.Code != http.StatusOK {
		t.Fatal(answer.Body)
	}
	got := s.writeReport(t, workloads+"/w", schema.WorkloadEntry, "w", "first")
	if c := got.Status.Conditions; len(c) != 2 || c[0].Type != "Healthy" || c[1].Message != "first" {
		t.Errorf("conditions %+v", c)
	}
	// An agent sends back what it read, with a health of its own: it cannot change the
	// rest.
	answer = s.Do(t, http.MethodPut, workloads+"/w/status", workload("w", "", `,"status":{"conditions":[`+
		`{"type":"Programmed","status":"False","message":"forged"},{"type":"Healthy","status":"False"}]}`))
	if answer.Code != http.StatusOK {
		t.Fatal(answer.Body)
	}
	if c := s.object(t, workloads+"/w").Status.Conditions; len(c) != 2 || c[0].Status != "False" || c[1].Message != "first" {
		t.Errorf("conditions %+v", c)
	}
	// There is no report on another object of the same name: it is under way, as every
	// new object is while servers write conditions.
	s.Do(t, http.MethodDelete, workloads+"/w", "")
	s.Do(t, http.MethodPost, workloads, workload("w", "", ""))
	got = s.object(t, workloads+"/w")
	if c := got.Status.Conditions; len(c) != 3 || c[1].Status != "Unknown" || c[2].Type != "Reconciling" || c[2].Message == "first" || got.Status.ObservedGeneration != "1" {
		t.Errorf("conditions of another one: %+v, generation %s", c, got.Status.ObservedGeneration)
	}
}

// TestReportsAreInNobodysWay: a write under any version that the object has had since
// its last write succeeds. A write under an earlier version is a conflict.
func TestReportsAreInNobodysWay(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	document := func(version, label string) string {
		return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"e","namespace":"shop","resourceVersion":%q,"labels":{"l":%q}},`+
			`"spec":{"hosts":["e.shop"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"DNS"}}`, version, label)
	}
	batchOf := func(verb, object string) string {
		return `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"` + verb + `","object":` + object + `}]}`
	}
	path := shop + "/serviceentries"
	s.Do(t, http.MethodPost, path, strings.Replace(document("", "0"), `"resourceVersion":"",`, "", 1))
	for i, write := range []func(version string) resttest.Answer{
		func(version string) resttest.Answer {
			return s.Do(t, http.MethodPut, path+"/e", document(version, "put"+version))
		},
		func(version string) resttest.Answer {
			return s.Do(t, http.MethodPost, "/apis/portolan.io/v1/batches", batchOf("apply", document(version, "batch"+version)))
		},
		func(version string) resttest.Answer {
			dry := s.Do(t, http.MethodPut, path+"/e?dryRun=All", document(version, "dry"+version))
			if dry.Code != http.StatusOK {
				return dry
			}
			return s.Do(t, http.MethodPut, path+"/e", document(version, "again"+version))
		},
		func(version string) resttest.Answer {
			return s.Do(t, http.MethodPost, "/apis/portolan.io/v1/batches", batchOf("delete", document(version, "")))
		},
	} {
		before := s.object(t, path+"/e").Metadata.ResourceVersion
		first := s.writeReport(t, path+"/e", schema.ServiceEntry, "e", "one").Metadata.ResourceVersion
		last := s.writeReport(t, path+"/e", schema.ServiceEntry, "e", "two").Metadata.ResourceVersion
		written, _ := strconv.ParseInt(before, 10, 64)
		for _, wrong := range []string{strconv.FormatInt(written-1, 10), "100000"} {
			if answer := write(wrong); answer.Code != http.StatusConflict {
				t.Errorf("write %d under %s, of %s to %s: %d %s", i, wrong, before, last, answer.Code, answer.Body)
			}
		}
		if answer := write(first); answer.Code != http.StatusOK {
			t.Errorf("write %d under %s, of %s to %s: %d %s", i, first, before, last, answer.Code, answer.Body)
		}
		if answer := write(last); answer.Code != http.StatusConflict && answer.Code != http.StatusNotFound {
			t.Errorf("write %d under %s after another: %d %s", i, last, answer.Code, answer.Body)
		}
	}
}

// TestAVersionThatIsYetToBeLearntIsNoConflict: a client names a version from another
// server, of a report that this server has yet to read. The answer is to try again.
// Under an older version, or one that no server gave, it is a conflict. If the version
// is of a write, the store knows it.
func TestAVersionThatIsYetToBeLearntIsNoConflict(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	document := func(version, label string) string {
		return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"e","namespace":"shop",%s"labels":{"l":%q}},`+
			`"spec":{"hosts":["e.shop"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"DNS"}}`, version, label)
	}
	named := func(version string) string { return fmt.Sprintf(`"resourceVersion":%q,`, version) }
	path := shop + "/serviceentries"
	s.Do(t, http.MethodPost, path, document("", "0"))
	before := s.object(t, path+"/e").Metadata.ResourceVersion
	behind := s.cache.Snapshot()
	reported := s.writeReport(t, path+"/e", schema.ServiceEntry, "e", "one").Metadata.ResourceVersion
	s.cache.stopped.Store(behind)
	batch := func(version, label string) resttest.Answer {
		return s.Do(t, http.MethodPost, "/apis/portolan.io/v1/batches", `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":`+
			document(named(version), label)+`}]}`)
	}
	put := func(version, label string) resttest.Answer {
		return s.Do(t, http.MethodPut, path+"/e", document(named(version), label))
	}
	for name, write := range map[string]func(version, label string) resttest.Answer{"put": put, "batch": batch} {
		if answer := write(reported, name); answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body, "yet to learn of version "+reported) {
			t.Errorf("%s under a report that is yet to be read: %d %s", name, answer.Code, answer.Body)
		}
		if answer := write("100000", name); answer.Code != http.StatusConflict {
			t.Errorf("%s under a version that nobody was given: %d %s", name, answer.Code, answer.Body)
		}
	}
	answer := put(before, "new")
	if answer.Code != http.StatusOK {
		t.Fatalf("under the version that is stored: %d %s", answer.Code, answer.Body)
	}
	if answer := put(reported, "newer"); answer.Code != http.StatusConflict {
		t.Errorf("under a report of before the last write: %d %s", answer.Code, answer.Body)
	}
	var written servedObject
	if err := json.Unmarshal([]byte(answer.Body), &written); err != nil {
		t.Fatal(err)
	}
	if answer := put(written.Metadata.ResourceVersion, "newest"); answer.Code != http.StatusOK {
		t.Errorf("under a version that was written: %d %s", answer.Code, answer.Body)
	}
	s.cache.stopped.Store(nil)
}
