package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/side"
)

// patch is the body of a PATCH.
type patch struct {
	kind       types.PatchType
	text       []byte          // JSON
	operations jsonpatch.Patch // of a JSON patch
	manager    string
	force      bool
}

// gvk returns the kind of a call in its version, as clients of Kubernetes name it.
func (c *call) gvk() runtimeschema.GroupVersionKind {
	kind := c.schema.GroupVersionKind
	kind.Version = c.version
	return runtimeschema.FromAPIVersionAndKind(kind.APIVersion(), kind.Kind)
}

// patchTypes returns the types of patches that the kind of a call takes. Kubernetes' own kinds take
// strategic merge patches. Custom resources of Kubernetes take none, and so do all others here.
func patchTypes(c *call) []string {
	out := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if side.Types.Recognizes(c.gvk()) {
		out = append(out, string(types.StrategicMergePatchType))
	}
	return append(out, string(types.ApplyYAMLPatchType))
}

// readPatch reads a patch and its options.
func (s *Server) readPatch(c *call) (*patch, error) {
	body, err := s.budget.readRaw(c)
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if !slices.Contains(patchTypes(c), media) {
		return nil, refusal.New(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, fmt.Sprintf(
			"the body of the request was in an unknown format - accepted media types include: %s", strings.Join(patchTypes(c), ", ")))
	}
	p := &patch{kind: types.PatchType(media), text: body}
	if err := s.budget.decode(c, body, p.applies()); err != nil {
		return nil, err
	}
	if p.applies() {
		if p.text, err = config.YAMLToJSON(body); err != nil {
			return nil, refusal.BadRequest(fmt.Sprintf("the object in the request body cannot be read: %v", err))
		}
	}
	if p.kind == types.JSONPatchType {
		if p.operations, err = readJSONPatch(body); err != nil {
			return nil, err
		}
	}
	options := metav1.PatchOptions{FieldManager: c.query.Get("fieldManager")}
	if c.query.Has("force") {
		p.force = truthy(c.query, "force")
		options.Force = &p.force
	}
	if faults := validation.ValidatePatchOptions(&options, p.kind); len(faults) > 0 {
		return nil, refusal.Invalid("the parameters of the URL cannot be taken: " + faults.ToAggregate().Error())
	}
	p.manager = c.manager()
	return p, nil
}

// applies says whether the patch is a server-side apply.
func (p *patch) applies() bool { return p.kind == types.ApplyYAMLPatchType }

// on returns a document with the patch.
func (p *patch) on(document []byte, of runtimeschema.GroupVersionKind) (out []byte, err error) {
	switch p.kind {
	case types.JSONPatchType:
		if out, err = p.operations.Apply(document); err != nil {
			return nil, refusal.Invalid("the JSON patch does not fit the object: " + err.Error())
		}
	case types.StrategicMergePatchType:
		like, err := side.Types.New(of)
		if err != nil {
			return nil, err
		}
		if out, err = strategicpatch.StrategicMergePatch(document, p.text, like); err != nil {
			return nil, refusal.BadRequest("the strategic merge patch does not fit the object: " + err.Error())
		}
	default:
		if out, err = jsonpatch.MergePatch(document, p.text); err != nil {
			return nil, refusal.BadRequest("the merge patch cannot be read: " + err.Error())
		}
	}
	return out, nil
}

// patched changes an object by a patch. A server-side apply makes it if there is none. A change
// by somebody else meanwhile makes it begin anew, unless the patch names a version.
func (s *Server) patched(c *call) error {
	trial, err := s.rehearse(c, c.query["dryRun"])
	if err != nil {
		return err
	}
	p, err := s.readPatch(c)
	if err != nil {
		return err
	}
	if c.schema.Codec.Veiled() && readsAt(p.operations, "/data", "/stringData") {
		wants := c.access()
		wants.Verb = access.Reveal
		if err := s.authorize(c, wants); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		from := s.cache.Snapshot()
		revision, object, warnings, err := s.tryPatch(c, p, trial)
		if !meanwhile(err) || attempt == attempts || trial != nil || !s.catchUp(c, from) {
			if err != nil {
				return err
			}
			warn(c.w, warnings)
			return s.answerPatch(c, trial, object, revision)
		}
	}
}

// meanwhile says whether a write failed since the object is another than that of the snapshot.
func meanwhile(err error) bool {
	var named *versionError
	return !errors.As(err, &named) && (errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrExists) || errors.Is(err, storage.ErrNotFound))
}

// versionError is a conflict with a version that the client named: trying again is for the client.
type versionError struct{ error }

func (e *versionError) Unwrap() error { return e.error }

// catchUp waits until the cache has what the store has now. It returns false if that is no news
// after a snapshot, or cannot be had.
func (s *Server) catchUp(c *call, after *cache.Snapshot) bool {
	revision, err := s.storeRevision(c.r.Context())
	if err != nil {
		return false
	}
	now, err := s.atLeast(c.r.Context(), revision)
	return err == nil && now.Changed() > after.Changed()
}

// tryPatch makes the patched object of the newest snapshot, and writes it if the store still has
// what the snapshot has.
func (s *Server) tryPatch(c *call, p *patch, trial *rehearsal) (revision string, object *config.Config, warnings []string, err error) {
	snapshot := s.cache.Snapshot()
	if trial != nil {
		snapshot = trial.snapshot
	}
	live := ofStore(snapshot, c.key())
	op := storage.Op{Verb: storage.Update, Served: true}
	if live == nil {
		if !p.applies() {
			return "", nil, nil, s.notOfStore(c)
		}
		op.Verb = storage.Create
		wants := c.access()
		wants.Verb = access.Create
		if err := s.authorize(c, wants); err != nil {
			return "", nil, nil, err
		}
	}
	text, err := s.resultOf(c, p, snapshot, live)
	if err != nil {
		return "", nil, nil, err
	}
	if object, warnings, err = s.readText(c, text, false, op.Verb); err != nil {
		return "", nil, nil, err
	}
	if err := sameIncarnation(snapshot, live, object); err != nil {
		return "", nil, nil, err
	}
	object.UID, object.ResourceVersion = "", ""
	if live != nil {
		object.ResourceVersion = live.ResourceVersion
	}
	if !p.applies() {
		op.Managed, object.ManagedFields = s.managing(c, object.ManagedFields), nil
	}
	op.Config = object
	revision, err = s.applyOne(c, trial, op)
	return revision, object, warnings, err
}

// resultOf returns the document that a patch makes of an object; live is nil for none.
func (s *Server) resultOf(c *call, p *patch, snapshot *cache.Snapshot, live *config.Config) ([]byte, error) {
	if live == nil {
		return s.applied(c, p, &unstructured.Unstructured{})
	}
	served := withStatus(snapshot, live)
	open, err := s.unsealed(served)
	if err != nil {
		return nil, err
	}
	if p.applies() {
		before, err := unstructuredOf(open, c.version)
		if err != nil {
			return nil, err
		}
		return s.applied(c, p, before)
	}
	text, err := config.ToJSON(open, c.version)
	if err != nil {
		return nil, err
	}
	return p.on(text, c.gvk())
}

// applied returns the document that a server-side apply makes.
func (s *Server) applied(c *call, p *patch, live *unstructured.Unstructured) ([]byte, error) {
	var members map[string]any
	if err := json.Unmarshal(p.text, &members); err != nil || members == nil {
		return nil, refusal.BadRequest("the request body holds no object to apply")
	}
	applied := &unstructured.Unstructured{Object: members}
	want := c.gvk()
	if got := applied.GroupVersionKind(); got != want {
		return nil, refusal.BadRequest(fmt.Sprintf("apiVersion and kind of the applied object are %s, and the path takes %s", got, want))
	}
	if err := s.readable(c, p.text); err != nil {
		return nil, err
	}
	named := applied.GetResourceVersion()
	if has := live.GetResourceVersion(); named != "" && named != has {
		return nil, &versionError{&storage.ConflictError{Key: c.key(), Expected: named, Actual: has}}
	}
	out, err := s.managers.Apply(live, applied, p.manager, p.force)
	if err != nil {
		return nil, refusal.As(err, refusal.Invalid)
	}
	return out.MarshalJSON()
}

// readable says whether each field of an applied object can be read. Only what results from the
// apply must be whole, and valid.
func (s *Server) readable(c *call, text []byte) error {
	details := metav1.StatusDetails{Name: c.name, Group: c.schema.Group, Kind: c.schema.Kind}
	var found faults
	object, err := s.decode(text, false)
	if err == nil {
		fitToPath(c, object, &found)
	}
	found.decode(err, func(_, field, message string) (string, string) { return field, message })
	return found.error(c.key().String()+" cannot be applied", details)
}

func (s *Server) answerPatch(c *call, trial *rehearsal, object *config.Config, revision string) error {
	if trial != nil {
		code := http.StatusOK
		if trial.steps[0].Before == nil {
			code = http.StatusCreated
		}
		return s.writeObject(c, code, trial.object())
	}
	out := s.objectAfterWrite(c.r.Context(), object, revision)
	code := http.StatusOK
	if object.ResourceVersion == "" {
		code = http.StatusCreated
	}
	return s.writeObject(c, code, out)
}
