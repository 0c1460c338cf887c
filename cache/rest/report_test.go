package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/cache/rest/resttest"
	"github.com/portolan-mesh/portolan/cache/side"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// reported is an API on an etcd of its own, with what servers say of objects.
type reported struct {
	*resttest.Server
	client *clientv3.Client
}

func withReports(t *testing.T) reported {
	t.Helper()
	client := etcdtest.Start(t)
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot(), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	worker := cache.NewWorker()
	base := mirror.New(client, mirror.Options{Worker: worker, Schemas: schema.Pilot(), Store: store})
	merged := side.New(client, side.Options{Base: base, Schemas: schema.Pilot()})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{worker.Run, base.Run, merged.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if _, err := merged.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return reported{resttest.Start(t, 0, func(o *rest.Options) { o.Store, o.Cache, o.History = store, merged, store }), client}
}

// served is an object as far as these tests look.
type servedObject struct {
	Metadata struct{ UID, ResourceVersion string }
	Status   struct {
		Conditions []struct{ Type, Status, Message string }
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

// say reports on an object, and returns once the API shows it.
func (s reported) say(t *testing.T, path string, kind config.GroupVersionKind, name, message string) servedObject {
	t.Helper()
	before := s.object(t, path)
	value, err := etcd.EncodeStatus(&status.Report{
		Key: config.Key{Kind: kind, Namespace: "shop", Name: name}, UID: before.Metadata.UID, Generation: 1,
		Conditions: []status.Condition{{Type: status.Programmed, Status: status.True, Reason: "R", Message: message, Since: time.Unix(1, 0)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.client.Put(t.Context(), etcd.ObjectStatusKey(config.Key{Kind: kind, Namespace: "shop", Name: name}), string(value))
	if err != nil {
		t.Fatal(err)
	}
	after := s.object(t, path+"?resourceVersion="+strconv.FormatInt(answer.Header.Revision, 10))
	if after.Metadata.ResourceVersion != strconv.FormatInt(answer.Header.Revision, 10) {
		t.Errorf("the version is %s after a report at %d", after.Metadata.ResourceVersion, answer.Header.Revision)
	}
	return after
}

// TestReportsMoveTheVersion: what servers say is part of the status, beside what
// else is, and moves the version.
func TestReportsMoveTheVersion(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	s.Do(t, http.MethodPost, workloads, workload("w", "", ""))
	answer := s.Do(t, http.MethodPut, workloads+"/w/status", workload("w", "", condition("True", "")))
	if answer.Code != http.StatusOK {
		t.Fatal(answer.Body)
	}
	got := s.say(t, workloads+"/w", schema.WorkloadEntry, "w", "first")
	if c := got.Status.Conditions; len(c) != 2 || c[0].Type != "Healthy" || c[1].Message != "first" {
		t.Errorf("conditions %+v", c)
	}
	// An agent sends back what it read, with a health of its own: the rest is not its.
	answer = s.Do(t, http.MethodPut, workloads+"/w/status", workload("w", "", `,"status":{"conditions":[`+
		`{"type":"Programmed","status":"False","message":"forged"},{"type":"Healthy","status":"False"}]}`))
	if answer.Code != http.StatusOK {
		t.Fatal(answer.Body)
	}
	if c := s.object(t, workloads+"/w").Status.Conditions; len(c) != 2 || c[0].Status != "False" || c[1].Message != "first" {
		t.Errorf("conditions %+v", c)
	}
	// Of another object by the same name nothing was said.
	s.Do(t, http.MethodDelete, workloads+"/w", "")
	s.Do(t, http.MethodPost, workloads, workload("w", "", ""))
	if c := s.object(t, workloads+"/w").Status.Conditions; len(c) != 0 {
		t.Errorf("conditions of another one: %+v", c)
	}
}

// TestReportsAreInNobodysWay: a write under any version that the object had since
// it was written is done, and one under a version of before is a conflict.
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
		first := s.say(t, path+"/e", schema.ServiceEntry, "e", "one").Metadata.ResourceVersion
		last := s.say(t, path+"/e", schema.ServiceEntry, "e", "two").Metadata.ResourceVersion
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
