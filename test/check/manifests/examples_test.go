package manifests_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

// TestExamples: each names classes that an overlay brings, each overlay has an example, and all are in a namespace of their
// own, so that their removal takes nothing else away.
func TestExamples(t *testing.T) {
	var classes, snapshotClasses []string
	unused := map[string]bool{}
	for _, overlay := range overlays(t) {
		unused[overlay] = true
		for _, c := range parse(t, render(t, sets()[overlay])).classes {
			classes = append(classes, c.Name)
		}
		if slices.Contains(available(t, overlay), "snapshots") {
			for _, c := range parse(t, combination{overlay, []string{"snapshots"}}.render(t)).snapshotClasses {
				snapshotClasses = append(snapshotClasses, c.Metadata.Name)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(deploy, "examples", "*.yaml"))
	must(t, err)
	files = slices.DeleteFunc(files, func(file string) bool {
		return slices.Contains([]string{"report.yaml", "proved-restore.yaml"}, filepath.Base(file)) // they have tests of their own
	})
	for _, file := range files {
		var secrets []string
		for head, document := range objectsIn(t, example(t, filepath.Base(file))) {
			own := "cloudblock-examples"
			ofCluster := head.Kind == "StorageClass" || head.Kind == "Namespace" && head.Name == own || strings.HasPrefix(head.Kind, "ClusterRole") && strings.HasPrefix(head.Name, own)
			if head.Namespace != own && !ofCluster {
				t.Errorf("%s: %s %s is in the namespace %q, want %s", file, head.Kind, head.Name, head.Namespace, own)
			}
			switch head.Kind {
			case "Namespace":
				read[corev1.Namespace](t, document)
			case "StorageClass": // before the claims that name it
				c := read[storagev1.StorageClass](t, document)
				classes = append(classes, c.Name)
				checkSecrets(t, file, c.Parameters, secrets)
			case "Secret":
				s := read[corev1.Secret](t, document)
				secrets = append(secrets, s.Namespace+"/"+s.Name)
			case "PersistentVolumeClaim":
				name := *read[corev1.PersistentVolumeClaim](t, document).Spec.StorageClassName
				if !slices.Contains(classes, name) {
					t.Errorf("%s: no overlay has the class %s", file, name)
				}
				delete(unused, strings.Split(name, "-")[1])
			case "Pod":
				read[corev1.Pod](t, document)
			case "VolumeSnapshot":
				var s struct {
					Spec struct {
						Class string `json:"volumeSnapshotClassName"`
					}
				}
				if err := yaml.Unmarshal(document, &s); err != nil || !slices.Contains(snapshotClasses, s.Spec.Class) {
					t.Errorf("%s: no component has the class %s: %v", file, s.Spec.Class, err)
				}
			case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Job": // see TestBackupMayReadWhichBlocks
				if !strings.HasPrefix(filepath.Base(file), "changed-blocks") {
					t.Errorf("%s: a %s, which only the backup has", file, head.Kind)
				}
			default:
				t.Errorf("%s: a kind that no rule knows: %s", file, head.Kind)
			}
		}
	}
	for overlay := range unused {
		t.Errorf("no example is for %s", overlay)
	}
}

// checkSecrets: the secrets that a class of an encrypted volume names, for staging and for growth, are in its file.
func checkSecrets(t *testing.T, file string, parameters map[string]string, secrets []string) {
	for _, use := range []string{"node-stage", "node-expand"} {
		name := parameters["csi.storage.k8s.io/"+use+"-secret-namespace"] + "/" + parameters["csi.storage.k8s.io/"+use+"-secret-name"]
		if parameters["luks"] == "true" && !slices.Contains(secrets, name) {
			t.Errorf("%s: the class names %s as its %s secret, and the file has %v", file, name, use, secrets)
		}
	}
}

// TestReportMayOnlyRead: the report goes with the driver. Its account may list three kinds and nothing else, only the container
// with kubectl has its token, and nothing in it deletes. In an overlay it has the overlay's settings and images.
func TestReportMayOnlyRead(t *testing.T) {
	text := example(t, "report.yaml")
	overlay := named(t, "linode", "REGISTRY=registry.example.com/csi", "TAG=v1.2.3")
	kustomization := filepath.Join(overlay, "kustomization.yaml")
	written, err := os.ReadFile(kustomization)
	must(t, err)
	with := strings.Replace(string(written), "resources: [", "resources: [report.yaml, ", 1) +
		"configMapGenerator: [{name: cloudblock-settings, namespace: cloudblock-linode, literals: [CLUSTER_ID=prod]}]\n"
	must(t, os.WriteFile(kustomization, []byte(with), 0o600))
	must(t, os.WriteFile(filepath.Join(overlay, "report.yaml"), text, 0o600))
	account := rbacv1.Subject{Kind: "ServiceAccount", Name: "cloudblock-report", Namespace: "cloudblock-linode"}
	rights := map[string][]rbacv1.PolicyRule{"ClusterRole": {
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes", "persistentvolumeclaims"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"snapshot.storage.k8s.io"}, Resources: []string{"volumesnapshotcontents"}, Verbs: []string{"get", "list"}},
	}}
	var kinds []string
	for head, document := range objectsIn(t, render(t, overlay)) {
		if !strings.HasPrefix(head.Name, "cloudblock-report") {
			continue
		}
		kinds = append(kinds, head.Kind)
		checkAccount(t, head.Kind, document, account, rights)
		if head.Kind == "CronJob" {
			checkReport(t, read[batchv1.CronJob](t, document).Spec.JobTemplate.Spec.Template.Spec)
		}
	}
	if slices.Sort(kinds); !slices.Equal(kinds, []string{"ClusterRole", "ClusterRoleBinding", "CronJob", "ServiceAccount"}) {
		t.Errorf("the report is %q", kinds)
	}
}

func checkReport(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != "cloudblock-report" || !*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("the pod is %+v", pod)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if s := c.SecurityContext; s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("container %s has more than it needs: %+v", c.Name, c)
		}
		token, secret := mounts(c, "api-token"), mounts(c, "credentials")
		if ours := c.Args != nil; ours == token || ours != secret {
			t.Errorf("container %s has the token of the API server: %t, the cloud's credentials: %t", c.Name, token, secret)
		}
		if strings.Contains(strings.Join(slices.Concat(c.Command, c.Args), " "), "delete") {
			t.Errorf("container %s deletes", c.Name)
		}
		if c.Args == nil {
			continue
		}
		if c.Image != "registry.example.com/csi/controller:v1.2.3" || len(c.EnvFrom) != 1 || !strings.HasPrefix(c.EnvFrom[0].ConfigMapRef.Name, "cloudblock-settings-") {
			t.Errorf("container %s has the image %s and the settings %+v, want those of the overlay", c.Name, c.Image, c.EnvFrom)
		}
	}
}

func mounts(c corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}
