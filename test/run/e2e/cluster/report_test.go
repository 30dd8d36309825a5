//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// secretKeys are the keys of the clouds' Secrets, which the report's reader changes with the name of the cloud.
var secretKeys = map[string]string{"linode": "token", "digitalocean": "access-token", "yandex": "key.json"}

// reportKustomization adds the report to a folder, with this cluster's image of the controller and the certificate of the emulator.
const reportKustomization = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [report.yaml]
images: [{name: ghcr.io/cloudblock-csi/controller, newName: %[1]q, newTag: %[2]q}]
patches:
- patch: |
    apiVersion: batch/v1
    kind: CronJob
    metadata: {name: cloudblock-report, namespace: cloudblock-%[3]s}
    spec:
      jobTemplate:
        spec:
          template:
            spec:
              containers:
              - {name: sums, volumeMounts: [{name: emulator, mountPath: /emulator, readOnly: true}]}
              - {name: unused, volumeMounts: [{name: emulator, mountPath: /emulator, readOnly: true}]}
              volumes: [{name: emulator, configMap: {name: emulator}}]
`

// TestReport is "A report every day" of docs/operations.md: the CronJob's account may read what it needs, kubectl's image needs no
// shell, and what the containers print has the volumes of this cluster: one in use, and one that no pod uses.
func TestReport(t *testing.T) {
	s := begin(t, "report")
	ctx := t.Context()
	for _, name := range []string{"used", "idle"} {
		must(t, s.place(ctx, claimOptions{name: name, class: s.env.classes["ext4"], size: s.env.round(512 * mib)}, ""))
	}
	volumes, pods := map[string]string{}, map[string]kube.Pod{}
	for _, name := range []string{"used", "idle"} {
		p, err := s.UntilReady(ctx, name, patience)
		must(t, err)
		claim, err := s.claimOf(ctx, p)
		must(t, err)
		volumes[name], pods[name] = claim.Spec.VolumeName, p
	}
	must(t, s.away(ctx, pods["idle"]))
	dir := s.reportFolder(t)
	t.Cleanup(func() {
		if _, err := s.env.Run(context.WithoutCancel(ctx), "delete", "-k", dir, "--ignore-not-found", "--timeout="+patience.String()); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.env.Run(ctx, "apply", "-k", dir); err != nil {
		t.Fatal(err)
	}
	d := s.env.driver
	for _, args := range [][]string{
		{"create", "job", "--from=cronjob/cloudblock-report", "report-now"},
		{"wait", "--for=condition=Complete", "job/report-now", "--timeout=" + patience.String()},
	} {
		if _, err := d.Run(ctx, args...); err != nil {
			logs, _ := d.Run(ctx, "logs", "job/report-now", "--all-containers", "--ignore-errors")
			t.Fatalf("%v\n%s", err, logs)
		}
	}
	printed := map[string]string{}
	for _, container := range []string{"sums", "unused"} {
		var err error
		if printed[container], err = d.Run(ctx, "logs", "job/report-now", "--container="+container); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s:\n%s", container, printed[container])
	}
	both := 2 * s.env.round(512*mib) / gib
	want := fmt.Sprintf("test %s %s 2 %d 0 0 ", s.Namespace, s.env.classes["ext4"], both)
	if !strings.Contains(strings.Join(strings.Fields(printed["sums"]), " ")+" ", want) {
		t.Errorf("the sums have no line %q", want)
	}
	if strings.Contains(printed["unused"], volumes["used"]) {
		t.Errorf("the volume %s is in use and reported as unused", volumes["used"])
	}
	// From 1.37 on Kubernetes says that no pod has used the volume for a minute, which is not 30 days; older ones say nothing.
	dated, err := s.Run(ctx, "get", "pvc", "idle", "-o", `jsonpath={.status.conditions[?(@.type=="Unused")].status}`)
	must(t, err)
	if listed := strings.Contains(printed["unused"], volumes["idle"]); listed != (dated == "") {
		t.Errorf("the idle volume %s is listed: %t; its claim is unused: %q", volumes["idle"], listed, dated)
	}
}

// reportFolder returns a folder with the example, changed for the cloud as its first lines say.
func (s *story) reportFolder(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "deploy/examples/report.yaml"))
	must(t, err)
	price := "--price=auto"
	if s.env.cloud != "linode" {
		price = "--price=0.1"
	}
	words := strings.NewReplacer("linode", s.env.cloud, "key: token", "key: "+secretKeys[s.env.cloud], "--price=auto", price)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "report.yaml"), words.Replace(string(text)))
	image := s.env.installation(t).fresh["controller"]
	colon := strings.LastIndex(image, ":")
	write(t, filepath.Join(dir, "kustomization.yaml"), fmt.Sprintf(reportKustomization, image[:colon], image[colon+1:], s.env.cloud))
	return dir
}
