package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The cluster has the image that the example names, whichever release of Kubernetes it runs.
func TestTheReportsImageIsMade(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/examples/report.yaml")
	must(t, err)
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
		must(t, err)
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q", path, want)
		}
	}
	if images := sidecarImages(layout{cache: "/cache"}, []string{snapshotMetadataImage}); len(images) != 1 || images[0].Entrypoint[0] != "/csi-snapshot-metadata" {
		t.Errorf("the images are %+v", images)
	}
}
