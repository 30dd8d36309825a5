package machine_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// service returns the URL of a service that answers these paths with these texts, and others with 404 as the real one does.
func service(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := answers[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestDigitalOceanSaysWhichDropletThisIs(t *testing.T) {
	tests := map[string]struct {
		id, region string
		want       machine.Info
		kind       fault.Kind
	}{
		"a droplet":                       {"123456789", "fra1", machine.Info{ID: "123456789", Zone: "fra1"}, fault.None},
		"a line end is no part of it":     {"7\n", "nyc1\n", machine.Info{ID: "7", Zone: "nyc1"}, fault.None},
		"something else answers in HTML":  {"<html>", "<html>", machine.Info{}, fault.Unavailable},
		"an id that is no number":         {"i-0abc", "fra1", machine.Info{}, fault.Unavailable},
		"an empty region":                 {"7", "", machine.Info{}, fault.Unavailable},
		"an answer longer than any value": {strings.Repeat("1", 1<<20), "fra1", machine.Info{}, fault.Unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base := service(t, map[string]string{"/metadata/v1/id": tc.id, "/metadata/v1/region": tc.region})
			got, err := machine.DigitalOcean(t.Context(), base)
			if got != tc.want || fault.Of(err) != tc.kind {
				t.Errorf("DigitalOcean = %+v, %v, want %+v and the kind %q", got, err, tc.want, tc.kind)
			}
		})
	}
}

func TestItIsAskedUntilItAnswers(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(map[string]string{"/metadata/v1/id": "7", "/metadata/v1/region": "ams3"}[r.URL.Path]))
	}))
	t.Cleanup(server.Close)
	got, err := machine.DigitalOcean(t.Context(), server.URL+"/")
	if err != nil || got != (machine.Info{ID: "7", Zone: "ams3"}) {
		t.Errorf("DigitalOcean after a first failure = %+v, %v", got, err)
	}
}

func TestWhoIsNotThereIsUnavailableWhenTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := machine.DigitalOcean(ctx, "http://127.0.0.1:1")
	if fault.Of(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("DigitalOcean = %v, want %v after the deadline", err, fault.Unavailable)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := service(t, map[string]string{"/metadata/v1/id": "7", "/metadata/v1/region": "ams3"})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := machine.DigitalOcean(ctx, server.URL); err == nil {
		t.Errorf("DigitalOcean behind a redirect = %+v, want an error", got)
	}
}

func TestCheckBase(t *testing.T) {
	for base, ok := range map[string]bool{
		"http://169.254.169.254": true, "http://127.0.0.1:8080": true, "https://x.example/": true, "http://127.0.0.1:1/droplets/7": true,
		"": false, "169.254.169.254": false, "ftp://x": false, "http://": false, "http://u:p@x": false, "http://x?y": false, "http://%": false,
	} {
		if err := machine.CheckBase(base); (err == nil) != ok {
			t.Errorf("CheckBase(%q) = %v", base, err)
		}
	}
}
