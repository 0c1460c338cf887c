package selection

import (
	"fmt"
	"strings"
	"sync"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors are the discoverySelectors of the mesh as they are now. All clusters of a server
// share one. It is safe for concurrent use.
type Selectors struct {
	mu    sync.Mutex // guards the fields below
	list  List
	known bool
	next  chan struct{} // closed when the list changes
}

// NewSelectors returns Selectors that are not known yet.
func NewSelectors() *Selectors { return &Selectors{next: make(chan struct{})} }

// Set takes the present selectors. If one cannot be read, the last ones that could be stay, none
// at first, and Set returns why.
func (s *Selectors) Set(of []*meshv1alpha1.LabelSelector) error {
	list, at, err := newList(of)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		list, err = s.list, fmt.Errorf("discoverySelectors[%d]: %w", at, err)
	}
	if s.known && s.list.text == list.text {
		return err
	}
	s.list, s.known = list, true
	close(s.next)
	s.next = make(chan struct{})
	return err
}

// Now returns the present list, and a channel that is closed at the next change. known is
// false before the first Set.
func (s *Selectors) Now() (list List, known bool, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.known, s.next
}

// List is a list of selectors. It is never modified.
type List struct {
	of   []labels.Selector
	text string // equal lists have equal texts
}

// Unreadable returns the first selector that cannot be read, and why; nil if all can.
func Unreadable(of []*meshv1alpha1.LabelSelector) (at int, err error) {
	_, at, err = newList(of)
	return at, err
}

// newList returns a list, or which selector cannot be read, and why.
func newList(from []*meshv1alpha1.LabelSelector) (out List, at int, err error) {
	var texts []string
	for i, s := range from {
		of := &metav1.LabelSelector{MatchLabels: s.GetMatchLabels()}
		for _, r := range s.GetMatchExpressions() {
			of.MatchExpressions = append(of.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: r.GetKey(), Operator: metav1.LabelSelectorOperator(r.GetOperator()), Values: r.GetValues(),
			})
		}
		one, err := metav1.LabelSelectorAsSelector(of)
		if err != nil {
			return List{}, i, err
		}
		out.of, texts = append(out.of, one), append(texts, one.String())
	}
	out.text = strings.Join(texts, "\n")
	if len(out.of) > 0 {
		out.text += "\n" // one empty selector is not none
	}
	return out, 0, nil
}

// Empty says that there are no selectors: every namespace counts.
func (l List) Empty() bool { return len(l.of) == 0 }

// Matches says whether a namespace with these labels counts: one of the selectors matches.
func (l List) Matches(of map[string]string) bool {
	for _, s := range l.of {
		if s.Matches(labels.Set(of)) {
			return true
		}
	}
	return l.Empty()
}
