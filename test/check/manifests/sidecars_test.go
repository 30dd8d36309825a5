package manifests_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// C19: a sidecar's client sends 5 requests a second by default, however many workers it has. Those of the snapshot-controller also wait
// with the mark that lets csi-snapshotter delete a snapshot: without it the snapshot stays (kubernetes-csi/external-snapshotter#1446,
// kubernetes-csi/external-snapshotter#1344).
func TestSidecarsMaySendWhatTheirWorkersNeed(t *testing.T) {
	forEachContainer(t, func(_ corev1.PodSpec, c corev1.Container) error {
		for _, want := range []string{"--kube-api-qps=50", "--kube-api-burst=100"} {
			if (slices.Contains(withToken, c.Name) || c.Name == "snapshot-controller") && !slices.Contains(c.Args, want) {
				return fmt.Errorf("it has no %s", want)
			}
		}
		return nil
	})
}

// A15: a call that waits for a machine keeps its worker for up to --timeout, and each volume of a lost machine has one: 4 Linodes have 256
// (kubernetes-csi/external-attacher#706, kubernetes-csi/external-attacher#761). The controller refuses calls above 1,000.
func TestSidecarsHaveWorkersForCallsThatWait(t *testing.T) {
	least := map[string]int{"csi-provisioner": 100, "csi-attacher": 256, "csi-snapshotter": 100}
	forEachSet(t, func(t *testing.T, o objects) {
		sum := 0
		for _, c := range o.pods["Deployment/cloudblock-controller"].Containers {
			workers := 0
			for _, arg := range c.Args {
				if number, ok := strings.CutPrefix(arg, "--worker-threads="); ok {
					workers, _ = strconv.Atoi(number)
				}
			}
			if workers < least[c.Name] {
				t.Errorf("%s has %d workers, want %d", c.Name, workers, least[c.Name])
			}
			sum += workers
		}
		if sum > 1000 {
			t.Errorf("the sidecars have %d workers", sum)
		}
	})
}
