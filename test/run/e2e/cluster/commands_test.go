//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/words"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

const repository = "../../../.."

// TestCommands runs each kubectl command of the documents against the API server, in a way that changes nothing that
// lasts: what reads runs as it is, what writes is a dry run of the server.
func TestCommands(t *testing.T) {
	s := begin(t, "commands")
	ctx := t.Context()
	r := reader{cloud: s.env.cloud, kubectl: s.Kubectl, documents: map[string]string{}, values: map[string]string{
		"NAMESPACE": "kube-system", "TOKEN-FILE": "token", "PASSWORD": "word", "TAG": "word", "RELEASE": "vendor",
	}}
	must(t, s.furnish(ctx, r.values))
	assumed := s.assume(t)
	t.Logf("%d objects that the documents assume were made for the test", assumed)
	r.furnished, r.empty = s.Client, s.env.namespace(t, "bare")
	for _, c := range []*kube.Client{&r.furnished, &r.empty} {
		c.Kubeconfig = configured(t, *c)
	}
	r.words = strings.NewReplacer(s.env.words...)
	all, err := commands.All(repository)
	must(t, err)
	for _, c := range all {
		if reason := c.LeftOut(s.env.cloud); reason != "" {
			t.Logf("left out: %s: %s", c, reason)
			continue
		}
		if err := r.try(t, c); err != nil {
			t.Error(err)
		}
	}
}

// furnish makes what the quickstart has made when its later commands run, in the story's namespace.
func (s *story) furnish(ctx context.Context, values map[string]string) error {
	if err := s.claimAndPod(ctx); err != nil {
		return err
	}
	if _, err := s.run(ctx, "xfs.yaml"); err != nil {
		return err
	}
	if _, err := s.apply(ctx, "snapshot.yaml"); err != nil {
		return err
	}
	for _, name := range []string{"restored", "cloned"} {
		pod := newPod(name, name, "")
		pod["spec"].(map[string]any)["volumes"] = []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}}
		mainOf(pod)["command"] = []string{"sh", "-c", "echo hello >/data/greeting; sleep 1000000"}
		if err := s.Create(ctx, pod); err != nil {
			return err
		}
		if _, err := s.UntilReady(ctx, name, patience); err != nil {
			return err
		}
	}
	for _, name := range []string{"block-full", "block-incremental"} { // those of the backup, which TestChangedBlocks runs
		job := reported()[1].(map[string]any)
		job["metadata"] = map[string]any{"name": name}
		if err := s.Create(ctx, job); err != nil {
			return err
		}
	}
	claim, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", "data")
	if err != nil {
		return err
	}
	values["NODE"], values["NAME"], values["V"] = s.at, claim.Spec.VolumeName, claim.Spec.VolumeName
	values["CLAIM"], values["POD"], values["SNAPSHOT"] = "data", "app", "data"
	pods, err := s.env.driver.pods(ctx)
	if err == nil {
		values["$pod"] = "pod/" + pods[0].Metadata.Name
	}
	return err
}

// assume makes what the documents assume and this cluster lacks: the drivers of the other clouds and those of the vendors, which run no
// pod, and a report.
func (s *story) assume(t *testing.T) int {
	t.Helper()
	objects := assumed(s.env.cloud)
	file := filepath.Join(t.TempDir(), "assumed.json")
	text, err := json.Marshal(list(objects...))
	must(t, err)
	write(t, file, string(text))
	t.Cleanup(func() {
		if _, err := s.env.Run(context.Background(), "delete", "-f", file, "--ignore-not-found", "--timeout="+patience.String()); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.env.Run(t.Context(), "apply", "--server-side", "--force-conflicts", "-f", file); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		meta := o.(map[string]any)["metadata"].(map[string]any)
		kind := o.(map[string]any)["kind"].(string)
		what := fmt.Sprintf("%s/%s", kind, meta["name"])
		var wait []string
		switch kind {
		case "Deployment", "DaemonSet":
			wait = []string{"rollout", "status", what, "--timeout=1m"}
		case "Job":
			wait = []string{"wait", "--for=condition=Complete", what, "--timeout=" + patience.String()}
		default:
			continue
		}
		if _, err := s.env.In(meta["namespace"].(string)).Run(t.Context(), wait...); err != nil {
			t.Fatal(err)
		}
	}
	return len(objects)
}

// reader follows the documents.
type reader struct {
	// cloud is that of the cluster's own driver.
	cloud, kubectl string
	// furnished and empty have kubeconfigs of their own: for a namespace that has the objects of the quickstart, and for one
	// that has nothing yet. They stand for the examples' namespace.
	furnished, empty kube.Client
	// values are what stands for the placeholders.
	values map[string]string
	// words turns sizes of the examples into this cloud's.
	words *strings.Replacer
	// documents has the folder where the commands of each document run, those for each cloud.
	documents map[string]string
}

// try runs a command. What it writes is refused by nothing, or is there already; what it waits for need not come.
func (r reader) try(t *testing.T, c commands.Command) error {
	t.Helper()
	c, err := c.Fill(r.values)
	if err != nil {
		return err
	}
	args, err := c.Harmless()
	if err != nil {
		return err
	}
	at := r.furnished
	switch c.Verb() {
	case "apply", "create", "delete":
		at = r.empty
	case "patch":
		for i := range args {
			args[i] = r.words.Replace(args[i])
		}
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], exampleNamespace, at.Namespace)
	}
	cmd := exec.CommandContext(t.Context(), r.kubectl, append([]string{"--kubeconfig", at.Kubeconfig}, args...)...)
	cmd.Dir = r.folder(t, c.Document, c.Cloud)
	cmd.Stdin = strings.NewReader("what a secret has")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Run(); err != nil && !expected(c.Verb(), problems.String()) {
		lines := slices.DeleteFunc(strings.Split(problems.String(), "\n"), func(line string) bool { return strings.HasPrefix(line, "Warning: ") })
		return fmt.Errorf("%s\nran as kubectl %s: %w\n%s", c, strings.Join(args, " "), err, strings.Join(lines, "\n"))
	}
	return nil
}

// expected reports whether the command is right and only the cluster is not as far as a reader's.
func expected(verb, problem string) bool {
	switch verb {
	case "wait":
		return strings.Contains(problem, "timed out waiting for the condition")
	case "create":
		return strings.Contains(problem, "AlreadyExists") || strings.Contains(problem, "already exists")
	default:
		return false
	}
}

// folder returns where a document's reader is: next to a copy of deploy/, with the folder of their own that the document
// shows.
func (r reader) folder(t *testing.T, document, cloud string) string {
	t.Helper()
	if dir := r.documents[document+cloud]; dir != "" {
		return dir
	}
	dir := t.TempDir()
	r.documents[document+cloud] = dir
	must(t, os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(repository, "deploy"))))
	r.renameExamples(t, filepath.Join(dir, "deploy/examples"))
	write(t, filepath.Join(dir, "token"), "token")
	writeCertificate(t, dir)
	names, err := filepath.Abs(filepath.Join(repository, "build/names.sh"))
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), names, "component", filepath.Join(dir, "bin/images")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kustomization := ""
	for _, source := range []string{document, "docs/customize.md"} {
		text, err := os.ReadFile(filepath.Join(repository, source))
		must(t, err)
		if kustomization = commands.Kustomization(words.For(string(text), cloud)); kustomization != "" {
			break
		}
	}
	write(t, filepath.Join(dir, "my-cluster/kustomization.yaml"), kustomization)
	if document == "docs/migrate.md" && cloud == r.cloud {
		write(t, filepath.Join(dir, "whole-move/kustomization.yaml"), kustomization)
		kustomization = fmt.Sprintf(withoutClasses, r.cloud)
	}
	write(t, filepath.Join(dir, "move/kustomization.yaml"), kustomization)
	return dir
}

// renameExamples puts the examples into the namespace where files are applied.
func (r reader) renameExamples(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples in %s: %v", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		write(t, file, strings.ReplaceAll(string(text), exampleNamespace, r.empty.Namespace))
	}
}

// withoutClasses is a move without the classes of a cloud. Where the driver runs under its own name, as in this cluster,
// they are there, and a class cannot change its driver.
const withoutClasses = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../whole-move
patches:
- target: {kind: StorageClass, name: cloudblock-%s.*}
  patch: |
    $patch: delete
    apiVersion: storage.k8s.io/v1
    kind: StorageClass
    metadata: {name: any}
`

// configured writes a kubeconfig whose namespace is a client's.
func configured(t *testing.T, c kube.Client) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	namespace := c.Namespace
	text, err := c.In("").Run(t.Context(), "config", "view", "--raw", "--flatten")
	must(t, err)
	write(t, file, text)
	c.Kubeconfig = file
	if _, err := c.In("").Run(t.Context(), "config", "set-context", "--current", "--namespace="+namespace); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeCertificate writes the files of openssl's command in docs/backends/local.md, a certificate and its key.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	pair, certificate, err := rest.Certificate("cloudblock-snapshot-metadata.cloudblock-local.svc")
	must(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must(t, err)
	write(t, filepath.Join(dir, "tls.crt"), string(certificate))
	write(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	must(t, err)
}

// assumed are the objects that the documents assume in a cluster of a cloud.
func assumed(cloud string) []any {
	var all []any
	for _, other := range slices.Sorted(maps.Keys(places)) {
		if other == cloud {
			continue
		}
		namespace := "cloudblock-" + other
		all = append(all, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}},
			map[string]any{
				"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": map[string]any{"name": places[other].driver},
				"spec": map[string]any{"attachRequired": !places[other].nodeBound},
			},
			workload("DaemonSet", namespace, "cloudblock-node", "app.kubernetes.io/name"))
		if !places[other].nodeBound {
			all = append(all, workload("Deployment", namespace, "cloudblock-controller", "app.kubernetes.io/name"))
		}
	}
	for _, vendor := range []string{"csi-do", "csi-linode", "csi"} {
		all = append(all, workload("StatefulSet", "kube-system", vendor+"-controller", "app"),
			workload("DaemonSet", "kube-system", vendor+"-node", "app"))
	}
	all = append(all, reported()...)
	for secret, key := range map[string]string{"digitalocean": "access-token", "linode": "token", "csi-credentials": "serviceAccountJSON"} {
		all = append(all, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": secret, "namespace": "kube-system"},
			"stringData": map[string]string{key: "of the vendor's driver"},
		})
	}
	return all
}

// reported are the report of docs/operations.md, which TestReport runs, and what its first command makes of it.
func reported() []any {
	meta := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": "cloudblock-linode"}
	}
	job := map[string]any{"template": map[string]any{"spec": map[string]any{
		"restartPolicy": "Never", "containers": []any{map[string]any{"name": "sums", "image": busybox, "command": []string{"true"}}},
	}}}
	return []any{
		map[string]any{
			"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("cloudblock-report"),
			"spec": map[string]any{"schedule": "17 5 * * *", "suspend": true, "jobTemplate": map[string]any{"spec": job}},
		},
		map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("report-now"), "spec": job},
	}
}

// workload is one that runs no pod: it wants none, or a node that there is not. Its container has the last word of its name.
func workload(kind, namespace, name, label string) map[string]any {
	labels := map[string]string{label: name}
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"nodeSelector": map[string]string{hostname: "none"},
				"containers":   []any{map[string]any{"name": name[strings.LastIndex(name, "-")+1:], "image": busybox}},
			},
		},
	}
	switch kind {
	case "StatefulSet":
		spec["serviceName"], spec["replicas"] = name, 0
	case "Deployment":
		spec["replicas"] = 0
	}
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec}
}
