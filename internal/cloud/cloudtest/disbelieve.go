package cloudtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// answeredCall is a call of a backend that gets hostile answers to its reads, or to its writes.
type answeredCall struct {
	change Change // "": Crashes.Empty cannot have it
	reads  bool
	on     Objects
}

// disbelieve makes each call of a backend with hostile answers, which the parsers of SDKs take for success: the outcome of a change
// is fault.Uncertain, that of a read fault.Unavailable.
func (cr Crashes) disbelieve(t *testing.T) {
	for name, a := range hostile {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := cr.Fresh(t)
				for call, ac := range cr.answeredCalls(t, account.Open(t, nil)) {
					if name == tooLarge && call != "GetVolume" {
						continue // one call is enough for an answer of this size
					}
					c := cr.HTTP(t, account, ac.answeredWith(a))
					err := Calls(c, cr.Request("new"), ac.on)[call](t.Context())
					switch kind := fault.Of(err); {
					case kind == fault.Uncertain && !ac.reads, kind == fault.Unavailable && ac.reads:
					case name == redirect && kind == fault.Unavailable: // a proxy that redirects a request has not executed it
					case name == emptyObject && slices.Contains(cr.Empty, ac.change): // this answer means success
					default:
						t.Errorf("%s = %v, want fault.Uncertain for a change and fault.Unavailable for a read", call, err)
					}
				}
			})
		})
	}
	t.Run("another volume", func(t *testing.T) { synctest.Test(t, cr.mistakeVolumes) })
	for name, answer := range map[string]wrongAnswer{"another operation": anotherOperation, "an operation that is not found": notFound} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cr.mistakeOperations(t, answer) })
		})
	}
	for name, a := range map[string]hostileAnswer{
		"a list that fails": hostile["{} and 500"], "a list that lacks everything": {status: http.StatusOK, kind: "application/json"},
		"a list that is refused": {status: http.StatusForbidden, kind: "application/json", body: `{"id":"forbidden","message":"no","errors":[{"reason":"no"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cr.hideLists(t, a) })
		})
	}
	t.Run("the token", func(t *testing.T) { cr.in(t, cr.hideToken) })
}

// hideLists gives each list this answer while two attaches are pending: an operation that a list lacks is not done. Without a body
// the answer is the cloud's, with empty lists. The volumes are created before that, because a create may need the list.
func (cr Crashes) hideLists(t *testing.T, a hostileAnswer) {
	w := cr.world(t, cr.Fresh(t).Open(t, nil).Capabilities())
	if !w.caps.Attach {
		return // the contract suite demands the refusal
	}
	var hidden atomic.Bool
	c := cr.HTTP(t, w.account, func(base http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := base.RoundTrip(r)
			if err != nil || r.Method != http.MethodGet || !hidden.Load() {
				return res, err
			}
			return a.forLists(res)
		})
	})
	nodes := []cloud.NodeID{w.Node, w.Second}
	ids := make([]cloud.VolumeID, len(nodes))
	for i, name := range []string{"a", "b"} {
		ids[i] = CreateVolume(t, c, cr.Request(name)).ID // by the controller that attaches it: it may cache the name
		w.arm(Attach, Fault{Takes: long})
	}
	hidden.Store(true)
	began := time.Now()
	AtOnce(t, len(nodes), func(i int) error {
		_, err := c.Attach(t.Context(), ids[i], nodes[i])
		if took := time.Since(began); err == nil && (took < long || took > 2*long) {
			t.Errorf("Attach has succeeded after %s, and takes %s", took, long)
		}
		return err
	})
	for i, id := range ids {
		w.at(id, nodes[i])
	}
}

// forLists replaces an answer that has lists of objects, and returns others unchanged. The object of a path with an id at its end, such
// as an operation with its resources, is not a list.
func (a hostileAnswer) forLists(res *http.Response) (*http.Response, error) {
	if endsWithID(res.Request) {
		return res, nil
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	empty, listed := withoutLists(body, 1)
	if !listed {
		return res, nil
	}
	if a.body == "" {
		a.body = string(empty)
	}
	return a.to(res.Request), nil
}

// withoutLists empties the lists of objects in an answer, and in its objects down to a depth. It reports whether there are any.
func withoutLists(body json.RawMessage, depth int) (empty json.RawMessage, listed bool) {
	var answer map[string]json.RawMessage
	_ = json.Unmarshal(body, &answer) // what is not an object has no lists
	for key, value := range answer {
		var list []struct{}
		if json.Unmarshal(value, &list) == nil && len(list) > 0 {
			answer[key], listed = json.RawMessage("[]"), true
		} else if depth > 0 {
			if inner, has := withoutLists(value, depth-1); has {
				answer[key], listed = inner, true
			}
		}
	}
	empty, err := json.Marshal(answer)
	return empty, listed && err == nil
}

// answeredWith wraps a transport so that it returns this answer to the call's reads or writes.
func (ac answeredCall) answeredWith(a hostileAnswer) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
			if (r.Method == http.MethodGet) != ac.reads {
				return base.RoundTrip(r)
			}
			return a.to(r), nil
		})
	}
}

// answeredCalls returns the calls that the cloud supports, with the objects that they need.
func (cr Crashes) answeredCalls(t *testing.T, c cloud.Cloud) map[string]answeredCall {
	t.Helper()
	caps := c.Capabilities()
	vol := CreateVolume(t, c, cr.Request("free"))
	free := Objects{Volume: vol.ID, Node: cr.Second}
	all := map[string]answeredCall{
		"Check":        {reads: true},
		"FindVolume":   {reads: true},
		"GetVolume":    {reads: true, on: free},
		"ListVolumes":  {reads: true},
		"CreateVolume": {change: Create},
		"DeleteVolume": {change: Delete, on: free},
	}
	if caps.Expand {
		all["ExpandVolume"] = answeredCall{change: Expand, on: free}
	}
	if caps.Attach {
		all["Attach"] = answeredCall{change: Attach, on: free}
		all["Detach"] = answeredCall{change: Detach, on: Objects{Volume: cr.attached(t, c), Node: cr.Node}}
	}
	if caps.Snapshots {
		snap := CreateSnapshot(t, c, cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID})
		all["FindSnapshot"] = answeredCall{reads: true}
		all["GetSnapshot"] = answeredCall{reads: true, on: Objects{Snapshot: snap.ID}}
		all["ListSnapshots"] = answeredCall{reads: true}
		all["CreateSnapshot"] = answeredCall{on: free}
		all["DeleteSnapshot"] = answeredCall{change: Delete, on: Objects{Snapshot: snap.ID}}
	}
	return all
}

// hideToken makes a proxy repeat the token of a request in its refusal. No error may contain it.
func (cr Crashes) hideToken(t *testing.T) {
	for _, body := range []string{
		"you sent Authorization: Bearer TOKEN", `{"message":"TOKEN"}`, `{"message":"no","request_id":"TOKEN"}`, `{"token":"TOKEN"}`,
		`{"errors":[{"reason":"TOKEN"}]}`, `{"errors":[{"reason":"no","field":"TOKEN"}]}`, `{"error":{"code":"TOKEN","message":"TOKEN"}}`,
	} {
		account := cr.Fresh(t)
		id := cr.origin(t, account.Open(t, nil))
		token := ""
		c := cr.HTTP(t, account, func(http.RoundTripper) http.RoundTripper {
			return RoundTripper(func(r *http.Request) (*http.Response, error) {
				_, token, _ = strings.Cut(r.Header.Get("Authorization"), " ")
				a := hostileAnswer{status: http.StatusForbidden, kind: "application/json", body: strings.ReplaceAll(body, "TOKEN", token)}
				return a.to(r), nil
			})
		})
		for _, err := range []error{c.Check(t.Context()), c.DeleteVolume(t.Context(), id)} {
			if err == nil || token == "" || strings.Contains(err.Error(), token) {
				t.Errorf("answered with %s: %v, want an error without the token %q", body, err, token)
			}
		}
	}
}
