package manifests_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// state is what a cluster has: manifests as they are applied, and what runs of them.
type state struct {
	daemonSets  []appsv1.DaemonSet
	deployments []appsv1.Deployment
	pods        []corev1.Pod
	csiDrivers  []storagev1.CSIDriver
	csiNodes    []storagev1.CSINode
	classes     []storagev1.StorageClass
	crds        []metav1.PartialObjectMetadata
	// forbidden kinds cannot be read, volumes are what each pod prints of its node's, as a table and as JSON.
	forbidden []string
	volumes   map[string][2]string
}

// newState applies renderings to a cluster of two nodes, on which everything runs.
func newState(t *testing.T, renderings ...[]byte) *state {
	t.Helper()
	s := &state{volumes: map[string][2]string{}}
	for _, rendering := range renderings {
		for document := range strings.SplitSeq(string(rendering), "\n---\n") {
			var head metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &head); err != nil {
				t.Fatal(err)
			}
			switch head.Kind {
			case "DaemonSet":
				s.daemonSets = append(s.daemonSets, read[appsv1.DaemonSet](t, []byte(document)))
			case "Deployment":
				s.deployments = append(s.deployments, read[appsv1.Deployment](t, []byte(document)))
			case "CSIDriver":
				s.csiDrivers = append(s.csiDrivers, read[storagev1.CSIDriver](t, []byte(document)))
			case "StorageClass":
				s.classes = append(s.classes, read[storagev1.StorageClass](t, []byte(document)))
			}
		}
	}
	for _, kind := range []string{"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"} {
		s.crds = append(s.crds, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: kind + ".snapshot.storage.k8s.io"}})
	}
	s.classes[0].Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	for _, node := range []string{"node-1", "node-2"} {
		registered := storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		for _, d := range s.csiDrivers {
			registered.Spec.Drivers = append(registered.Spec.Drivers, storagev1.CSINodeDriver{Name: d.Name, NodeID: node})
		}
		s.csiNodes = append(s.csiNodes, registered)
		for _, d := range s.daemonSets {
			s.run(d.ObjectMeta, d.Spec.Template, node)
		}
		for _, d := range s.deployments {
			s.run(d.ObjectMeta, d.Spec.Template, node)
		}
	}
	return s
}

func (s *state) run(owner metav1.ObjectMeta, from corev1.PodTemplateSpec, node string) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: owner.Name + "-" + node, Namespace: owner.Namespace, Labels: from.Labels}, Spec: from.Spec}
	pod.Spec.NodeName = node
	for _, c := range from.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	s.pods = append(s.pods, pod)
}

// pod returns a pod, and container the state of a container in it.
func (s *state) pod(name string) *corev1.Pod {
	for i := range s.pods {
		if s.pods[i].Name == name {
			return &s.pods[i]
		}
	}
	return nil
}

// waits lets a container wait for a reason.
func (s *state) waits(pod, container, reason string) {
	for i, c := range s.pod(pod).Status.ContainerStatuses {
		if c.Name == container {
			s.pod(pod).Status.ContainerStatuses[i] = corev1.ContainerStatus{Name: c.Name,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
		}
	}
}

// write writes the cluster for kubectl.
func (s *state) write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for kind, items := range map[string]any{
		"daemonsets": s.daemonSets, "deployments": s.deployments, "pods": s.pods, "csidrivers": s.csiDrivers, "csinodes": s.csiNodes,
		"storageclasses": s.classes, "customresourcedefinitions": s.crds,
	} {
		text, err := json.Marshal(map[string]any{"items": items})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, kind+".json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range s.forbidden {
		if err := os.Remove(filepath.Join(dir, kind+".json")); err != nil {
			t.Fatal(err)
		}
	}
	for pod, printed := range s.volumes {
		for i, output := range []string{"table", "json"} {
			if err := os.WriteFile(filepath.Join(dir, "volumes-"+pod+"."+output), []byte(printed[i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
