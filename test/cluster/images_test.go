package main

import (
	"slices"
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
