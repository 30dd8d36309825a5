package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archive writes an image for an architecture as `docker save` does, and returns the file and the image's digest.
func archive(t *testing.T, architecture string) (file, digest string) {
	t.Helper()
	image, err := random.Image(4096, 2)
	if err == nil {
		var config *v1.ConfigFile
		if config, err = image.ConfigFile(); err == nil {
			config.OS, config.Architecture = "linux", architecture
			image, err = mutate.ConfigFile(image, config)
		}
	}
	file = filepath.Join(t.TempDir(), "image.tar")
	if err == nil {
		err = tarball.WriteToFile(file, name.MustParseReference("example.com/node:v1").(name.Tag), image)
	}
	if err != nil {
		t.Fatal(err)
	}
	if image, err = tarball.ImageFromPath(file, nil); err != nil {
		t.Fatal(err)
	}
	hash, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return file, hash.String()
}

// serve starts a registry, behind a handler that a test may replace, and returns its address.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	server := httptest.NewServer(wrap(registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func plain(h http.Handler) http.Handler { return h }

func TestEachArchitectureIsPushedByItsDigestAndNoTagIsSet(t *testing.T) {
	repository := serve(t, plain) + "/mine/node"
	amd, amdDigest := archive(t, "amd64")
	arm, armDigest := archive(t, "arm64")
	var out bytes.Buffer
	if err := run(repository, []string{amd, arm}, &out); err != nil {
		t.Fatal(err)
	}
	repo, err := name.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(repo.Digest(strings.TrimSpace(out.String())))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		got = append(got, m.Platform.String()+" "+m.Digest.String())
	}
	if want := "linux/amd64 " + amdDigest + ", linux/arm64 " + armDigest; strings.Join(got, ", ") != want {
		t.Errorf("pushed %q, want %q", got, want)
	}
	if tags, err := remote.List(repo); err == nil && len(tags) > 0 {
		t.Errorf("the registry has the tags %q, want none", tags)
	}
}

func TestARegistryThatReturnsOtherBytesIsAnError(t *testing.T) {
	stored, _ := archive(t, "amd64")
	repository := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256:") {
				_, _ = io.WriteString(w, "other bytes")
				return
			}
			h.ServeHTTP(w, r)
		})
	}) + "/mine/node"
	var out bytes.Buffer
	if err := run(repository, []string{stored}, &out); err == nil || out.Len() != 0 {
		t.Errorf("push = %v and printed %q, want an error and nothing", err, out.String())
	}
}

func TestTwoArchivesOfOneArchitectureAreRefused(t *testing.T) {
	one, _ := archive(t, "amd64")
	two, _ := archive(t, "amd64")
	if err := run(serve(t, plain)+"/mine/node", []string{one, two}, io.Discard); err == nil || !strings.Contains(err.Error(), "both for linux/amd64") {
		t.Errorf("push = %v", err)
	}
}
