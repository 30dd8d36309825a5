package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const someManifests = `
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - image: ghcr.io/cloudblock-csi/node:v1.2.3
        name: node
      - name: registrar
        image: "registry.example/sig-storage/csi-node-driver-registrar:v2.15.0"
      - name: again
        image: ghcr.io/cloudblock-csi/node:v1.2.3
---
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: probe
        image: registry.example/livenessprobe@sha256:0123
        imagePullPolicy: IfNotPresent
`

func TestImagesNamedFindsEachOnce(t *testing.T) {
	got := imagesNamed(someManifests)
	want := []string{
		"ghcr.io/cloudblock-csi/node:v1.2.3",
		"registry.example/livenessprobe@sha256:0123",
		"registry.example/sig-storage/csi-node-driver-registrar:v2.15.0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("imagesNamed = %v, want %v", got, want)
	}
}

// The cluster has the image that the example names, whichever release of Kubernetes it runs.
func TestTheReportsImageIsMade(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/examples/report.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := imagesNamed(string(text)); !slices.Contains(got, kubectlImage) {
		t.Errorf("the example names %q, and the cluster has %s", got, kubectlImage)
	}
}

// The component that a test adds names the image that the nodes have, built from the module of that version.
func TestTheImageOfTheComponentIsMade(t *testing.T) {
	name, version, _ := strings.Cut(snapshotMetadataImage, ":")
	for path, want := range map[string]string{
		"../../../deploy/components/images/kustomization.yaml": "- name: " + name + "\n  newTag: " + version + "\n",
		"metadata/go.mod": "\tgithub.com/kubernetes-csi/external-snapshot-metadata " + version + "\n",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q", path, want)
		}
	}
	if images := sidecarImages(layout{cache: "/cache"}, []string{snapshotMetadataImage}); len(images) != 1 || images[0].entrypoint[0] != "/csi-snapshot-metadata" {
		t.Errorf("the images are %+v", images)
	}
}

func TestSidecarImagesHaveTheManifestsNames(t *testing.T) {
	images := sidecarImages(layout{cache: "/cache"}, imagesNamed(someManifests))
	if len(images) != 1 {
		t.Fatalf("sidecarImages made %d images, want the registrar's alone: %+v", len(images), images)
	}
	got := images[0]
	if got.tags[0] != "registry.example/sig-storage/csi-node-driver-registrar:v2.15.0" ||
		got.entrypoint[0] != "/csi-node-driver-registrar" || got.files[0].source != "/cache/cluster/bin/registrar" {
		t.Errorf("the registrar's image is %+v", got)
	}
}

func TestStampChangesWithAProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	images := []image{{tags: []string{"example/one:1"}, files: []file{{name: "one", source: program}}}}
	stamp := func(text string) string {
		t.Helper()
		if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := stampOfImages(images)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first, again, other := stamp("one"), stamp("one"), stamp("other")
	if first != again || first == other {
		t.Errorf("stamps are %q, %q and, of another program, %q", first, again, other)
	}
	images[0].tags = []string{"example/one:2"}
	if renamed := stamp("one"); renamed == first {
		t.Errorf("the stamp %q is the same under another name", renamed)
	}
}
