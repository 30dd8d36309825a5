package cloudtest

import (
	"bytes"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// mistakeVolumes answers the read of a volume with another volume.
func (cr Crashes) mistakeVolumes(t *testing.T) {
	account := cr.Fresh(t)
	c := account.Open(t, nil)
	asked := CreateVolume(t, c, cr.Request("asked"))
	other := CreateVolume(t, c, cr.Request("other"))
	named := regexp.MustCompile(`\b` + regexp.QuoteMeta(string(asked.ID)) + `\b`)
	mistaken := cr.HTTP(t, account, func(base http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				r = r.Clone(r.Context())
				r.URL.Path = named.ReplaceAllLiteralString(r.URL.Path, string(other.ID))
				r.URL.RawQuery = named.ReplaceAllLiteralString(r.URL.RawQuery, string(other.ID))
			}
			return base.RoundTrip(r)
		})
	})
	if vol, err := mistaken.GetVolume(t.Context(), asked.ID); fault.Of(err) != fault.Unavailable {
		t.Errorf("GetVolume(%s), answered with volume %s, = %+v, %v, want fault.Unavailable", asked.ID, other.ID, vol, err)
	}
}

// mistakeOperations gives wrong answers to the reads of an attach's operation: neither 404 nor another operation that has ended says
// that the attach is done.
func (cr Crashes) mistakeOperations(t *testing.T, answer wrongAnswer) {
	w := cr.world(t, cr.Fresh(t).Open(t, nil).Capabilities())
	if !w.caps.Attach {
		return // the contract suite demands the refusal
	}
	reads := operationReads{objects: []string{string(w.Node), string(w.Second)}, ended: []byte("{}")}
	c := cr.HTTP(t, w.account, reads.through)
	volume := func(name string) cloud.VolumeID {
		vol := CreateVolume(t, c, cr.Request(name)) // by the controller that attaches it: it may cache the name
		reads.mu.Lock()
		defer reads.mu.Unlock()
		reads.objects = append(reads.objects, string(vol.ID))
		return vol.ID
	}
	first, id := volume("first"), volume("a")
	w.arm(Attach, Fault{Takes: short}) // so that the next one is read early
	AttachTo(t, c, first, w.Second)
	w.arm(Attach, Fault{Takes: long})
	reads.give(answer)
	time.AfterFunc(long, func() { reads.give(rightAnswer) })
	began := time.Now()
	_, err := c.Attach(t.Context(), id, w.Node)
	if took := time.Since(began); err == nil && took < long {
		t.Errorf("Attach has succeeded after %s, and takes %s", took, long)
	}
	Must(t, Repeat(func() error { _, err := c.Attach(t.Context(), id, w.Node); return err }))
	w.at(id, w.Node)
}

// wrongAnswer is an answer to the read of a running operation.
type wrongAnswer int

const (
	rightAnswer wrongAnswer = iota
	notFound
	anotherOperation
)

// operationReads answers reads of operations. It knows them by an id at the end of the path that is no other object's; if the cloud's
// operations have no ids, there are none.
type operationReads struct {
	mu      sync.Mutex
	objects []string
	ended   []byte // the last right answer
	answer  wrongAnswer
}

func (o *operationReads) give(answer wrongAnswer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

func (o *operationReads) through(base http.RoundTripper) http.RoundTripper {
	return RoundTripper(func(r *http.Request) (*http.Response, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		dir, id := path.Split(r.URL.Path)
		if r.Method != http.MethodGet || !endsWithID(r) || slices.Contains(o.objects, id) {
			return base.RoundTrip(r)
		}
		if o.answer == notFound {
			r = r.Clone(r.Context())
			r.URL.Path = dir + strings.Map(func(c rune) rune {
				if '0' <= c && c <= '9' {
					return '9' - c + '0'
				}
				return c
			}, id)
		}
		res, err := base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch o.answer {
		case rightAnswer:
			o.ended = body
		case anotherOperation:
			body = o.ended
		case notFound:
		}
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return res, err
	})
}

// endsWithID reports whether the path of a request ends with an id: it asks for one object.
func endsWithID(r *http.Request) bool {
	return strings.ContainsAny(path.Base(r.URL.Path), "0123456789")
}
