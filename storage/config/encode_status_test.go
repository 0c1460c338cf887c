package config_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
)

// TestObservedGenerationIsANumber: as clients of Kubernetes decode it.
func TestObservedGenerationIsANumber(t *testing.T) {
	t.Parallel()
	object := edge()
	object.Status = &metav1alpha1.IstioStatus{ObservedGeneration: 7, Conditions: []*metav1alpha1.IstioCondition{{
		Type: "Accepted", Status: "True", Message: `{"observedGeneration":"5"}`, ObservedGeneration: 6, LastTransitionTime: timestamppb.New(time.Unix(1, 0)),
	}}}
	text, err := config.ToJSON(object, "")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Status struct {
			ObservedGeneration int64              `json:"observedGeneration"`
			Conditions         []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	c := got.Status.Conditions[0]
	if got.Status.ObservedGeneration != 7 || c.ObservedGeneration != 6 || c.Message != `{"observedGeneration":"5"}` || c.LastTransitionTime.Unix() != 1 {
		t.Errorf("%s", text)
	}
	yaml, err := config.ToYAML(object)
	if err != nil || !strings.Contains(string(yaml), "\n  observedGeneration: 7\n") {
		t.Errorf("%v %s", err, yaml)
	}
	if again, err := config.FromJSON(text, resolve); err != nil || again.Status.(*metav1alpha1.IstioStatus).ObservedGeneration != 7 {
		t.Errorf("read again: %v, %v", again, err)
	}
}
