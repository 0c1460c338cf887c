package clientgo

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// typed returns the client of Kubernetes itself.
func typed(t *testing.T, s *resttest.Server) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(&clientrest.Config{Host: s.URL, Transport: s.HTTP.Transport, UserAgent: "controller", QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLeaderElection: of two candidates one leads, and when it stops the other does.
func TestLeaderElection(t *testing.T) {
	t.Parallel()
	c := typed(t, resttest.Start(t, 0, nil))
	leads := make(chan string, 2)
	var running sync.WaitGroup
	candidate := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "shop", Name: "controller"}, Client: c.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads <- name }, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { elector.Run(ctx) })
		return cancel
	}
	stops := map[string]func(){"a": candidate("a"), "b": candidate("b")}
	t.Cleanup(func() {
		for _, stop := range stops {
			stop()
		}
		running.Wait()
	})
	await := func() string {
		select {
		case name := <-leads:
			return name
		case <-time.After(20 * time.Second):
			t.Fatal("nobody leads")
			return ""
		}
	}
	first := await()
	lease, err := c.CoordinationV1().Leases("shop").Get(t.Context(), "controller", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != first {
		t.Fatalf("%+v, %v; %s leads", lease, err, first)
	}
	stops[first]()
	second := await()
	if second == first {
		t.Fatalf("%s leads again", first)
	}
	lease, err = c.CoordinationV1().Leases("shop").Get(t.Context(), "controller", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != second || *lease.Spec.LeaseTransitions == 0 {
		t.Errorf("%+v, %v; %s leads", lease, err, second)
	}
}

var about = &corev1.ObjectReference{APIVersion: "networking.istio.io/v1", Kind: "VirtualService", Namespace: "shop", Name: "reviews", UID: "u"}

// TestEventRecorders: what both of client-go's recorders tell comes as events, and what happens
// again raises the count.
func TestEventRecorders(t *testing.T) {
	t.Parallel()
	c := typed(t, resttest.Start(t, 0, nil))
	old := record.NewBroadcaster(record.WithContext(t.Context()))
	old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events("")})
	defer old.Shutdown()
	recorder := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "controller"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeWarning, "Odd", "it is odd")
	}
	recording := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.EventsV1()})
	if err := recording.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer recording.Shutdown()
	recorderV1 := recording.NewRecorder(scheme.Scheme, "portolan.io/controller")
	for range 2 {
		recorderV1.Eventf(about, nil, corev1.EventTypeNormal, "Seen", "Look", "it was seen")
	}
	find := func(reason string) *corev1.Event {
		list, err := c.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.namespace=shop"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Reason == reason {
				return &list.Items[i]
			}
		}
		return nil
	}
	until(t, func() bool { e := find("Odd"); return e != nil && e.Count == 3 })
	until(t, func() bool { e := find("Seen"); return e != nil && e.Series != nil && e.Series.Count == 2 })
	if e := find("Odd"); e.Message != "it is odd" || e.Source.Component != "controller" || e.InvolvedObject.UID != "u" || e.LastTimestamp.IsZero() {
		t.Errorf("%+v", e)
	}
	list, err := c.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, e := range list.Items {
		want := map[string]eventsv1.Event{
			"Odd":  {Note: "it is odd", DeprecatedCount: 3},
			"Seen": {Note: "it was seen", ReportingController: "portolan.io/controller", Action: "Look"},
		}[e.Reason]
		if e.Note != want.Note || e.DeprecatedCount != want.DeprecatedCount || !strings.HasSuffix(e.ReportingController, want.ReportingController) || e.Action != want.Action || e.Regarding.Name != "reviews" {
			t.Errorf("%+v", e)
		}
	}
}

// until waits for a condition.
func until(t *testing.T, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for limit := time.After(30 * time.Second); !is(); {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatal("it did not come to pass")
		}
	}
}
