//go:build cluster

package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

const (
	// toolsImage has the clients of the sidecar, and a shell (test/run/cluster/images.go).
	toolsImage = "localhost/metadatatools:1"
	// blocksService is the Service before the sidecars, and the name of their certificate's Secret.
	blocksService = "cloudblock-snapshot-metadata"
	blocksSidecar = "csi-snapshot-metadata"
)

// backups are those of the example, by the commands of docs/backends/local.md.
type backups struct {
	*story
	own installation
	// page has the blocks of code of the document's section.
	page []string
	// dir is where the commands run.
	dir         string
	environment []string
	// host is the line of /etc/hosts by which pods find the Service: the cluster has no DNS.
	host map[string]any
}

// The blocks of code of the section, in order.
const (
	certificateBlock = iota
	objectBlock
	fullBlock
	incrementalBlock
	removalBlock
	blocksOfPage
)

// TestChangedBlocks is "Changed blocks" of docs/backends/local.md: the sidecar is installed as it says, and the example backs up a raw block
// volume, in full and then what has changed. Who may not read snapshots is refused, as is a client on another node. Clients and
// sidecars that are killed leave nothing that holds a snapshot.
func TestChangedBlocks(t *testing.T) {
	b := backups{story: begin(t, "blocks"), dir: t.TempDir()}
	b.own = b.env.installation(t)
	b.environment = operator(t, b.story, map[string]string{"kubectl": b.Kubectl})
	t.Cleanup(func() { b.withdraw(t) })
	for _, step := range []struct {
		name string
		run  func(*backups, context.Context) error
	}{
		{"the sidecar is installed by the document", (*backups).install},
		{"a full backup", (*backups).full},
		{"an incremental backup", (*backups).incremental},
		{"a restore", (*backups).restored},
		{"who may not read snapshots is refused", (*backups).stranger},
		{"a client on another node is refused", (*backups).onAnotherNode},
		{"clients and the sidecar are killed", (*backups).killed},
		{"removed by the document, and nothing is left", (*backups).removed},
	} {
		b.stage(t, step.name, func(ctx context.Context) error { return step.run(&b, ctx) })
	}
}

// install makes the certificate and the object, and adds the component to what is installed.
func (b *backups) install(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(repository, "docs/backends/local.md"))
	if err != nil {
		return err
	}
	section, err := commands.Section(string(text), "## Changed blocks")
	if err != nil {
		return err
	}
	if b.page = commands.Blocks(section); len(b.page) != blocksOfPage {
		return fmt.Errorf("the section has %d blocks of code, want %d", len(b.page), blocksOfPage)
	}
	if err := b.env.driver.Delete(ctx, "secret", blocksService); err != nil {
		return err
	}
	if err := b.follow(ctx, certificateBlock); err != nil {
		return err
	}
	certificate, err := os.ReadFile(filepath.Join(b.dir, "tls.crt"))
	if err != nil {
		return err
	}
	object := filepath.Join(b.dir, "service.yaml")
	filled := strings.Replace(b.page[objectBlock], "CERTIFICATE", base64.StdEncoding.EncodeToString(certificate), 1)
	if err := os.WriteFile(object, []byte(filled), 0o600); err != nil {
		return err
	}
	if _, err := b.env.Run(ctx, "apply", "-f", object); err != nil {
		return err
	}
	with := b.own
	with.manifests = filepath.Join(b.dir, "driver")
	if err := os.CopyFS(with.manifests, os.DirFS(b.own.manifests)); err != nil {
		return err
	}
	const overlay = "- deploy/overlays/local/"
	if err := replace(filepath.Join(with.manifests, "kustomization.yaml"), overlay+"source-node\n", overlay+"source-node\n"+overlay+"changed-blocks\n"); err != nil {
		return err
	}
	if err := with.deploy(ctx); err != nil {
		return err
	}
	address, err := b.env.driver.Run(ctx, "get", "service", blocksService, "-o", "jsonpath={.spec.clusterIP}")
	b.host = map[string]any{"ip": address, "hostnames": []string{blocksService + ".cloudblock-local.svc"}}
	return err
}

// replace replaces the one occurrence of a text in a file.
func replace(path, old, fresh string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), old); n != 1 {
		return fmt.Errorf("%s has %q %d times, want once", path, old, n)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), old, fresh, 1)), 0o600)
}

// follow runs the commands of a block of the document. The definition of the object is in the cluster already, and an example is
// changed for a cluster without DNS and without a way out.
func (b *backups) follow(ctx context.Context, block int) error {
	statements, err := commands.Statements(b.page[block])
	if err != nil {
		return err
	}
	for _, s := range statements {
		if strings.HasPrefix(s, "kubectl apply -f https://") {
			continue
		}
		if example, is := strings.CutPrefix(s, "kubectl apply -f deploy/examples/"); is {
			if err := b.applyBackup(ctx, example); err != nil {
				return err
			}
			continue
		}
		// A command that waits for what does not come, as the deletion of a claim that a pod holds, ends with the step.
		limited, cancel := context.WithTimeout(ctx, patience)
		cmd := exec.CommandContext(limited, "sh", "-euc", strings.ReplaceAll(s, exampleNamespace, b.Namespace))
		cmd.Dir, cmd.Env, cmd.WaitDelay = b.dir, b.environment, time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s\n%s", s, err, out, b.printed(ctx))
		}
	}
	return nil
}

// printed is what the jobs have printed, for the one who reads why they failed.
func (b *backups) printed(ctx context.Context) string {
	text, err := b.Run(context.WithoutCancel(ctx), "logs", "--selector", "app.kubernetes.io/name=changed-blocks", "--all-containers", "--ignore-errors", "--prefix", "--tail=20")
	if err != nil {
		return err.Error()
	}
	return text
}

// backupChanges replace in a job of the example what this cluster cannot have: the module proxy and DNS.
const backupChanges = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
patches:
- target: {kind: Job}
  patch: |
    - {op: replace, path: /spec/template/spec/initContainers/0/image, value: %q}
    - {op: replace, path: /spec/template/spec/initContainers/0/command, value: [cp, /snapshot-metadata-verifier, /tools/]}
    - {op: add, path: /spec/template/spec/hostAliases, value: [%s]}
    - {op: add, path: /spec/template/spec/dnsPolicy, value: Default}
`

// applyBackup applies an example with a job.
func (b *backups) applyBackup(ctx context.Context, file string) error {
	host, err := json.Marshal(b.host)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(b.examples, file))
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, strings.TrimSuffix(file, ".yaml"))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, file), text, 0o600),
		os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, backupChanges, file, toolsImage, host), 0o600)); err != nil {
		return err
	}
	_, err = b.Run(ctx, "apply", "-k", dir)
	return err
}

// withdraw leaves the driver as it was, and removes what is in no namespace of the test.
func (b *backups) withdraw(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	b.Log = t.Logf
	b.own.dump(t, b.Namespace)
	if err := b.Delete(ctx, "jobs", "--all"); err != nil {
		t.Error(err)
	}
	b.own.restore(t)
	for _, left := range [][]string{
		{"snapshotmetadataservice", b.env.place.driver},
		{"clusterrole,clusterrolebinding", "cloudblock-local-changed-blocks", b.Namespace + "-changed-blocks"},
	} {
		if err := b.env.Delete(ctx, left...); err != nil {
			t.Error(err)
		}
	}
	if err := b.env.driver.Delete(ctx, "service,secret", blocksService); err != nil {
		t.Error(err)
	}
	pods, err := b.env.driver.allReady(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			if c.Name == blocksSidecar {
				t.Errorf("pod %s still has the sidecar", p.Metadata.Name)
			}
		}
	}
}

// removed follows the end of the document: the jobs hold the claims until they are deleted.
func (b *backups) removed(ctx context.Context) error {
	if err := b.follow(ctx, removalBlock); err != nil {
		return err
	}
	for _, gone := range [][]string{{"pvc", "block-1"}, {"pvc", "block-2"}, {"volumesnapshot", "block-1"}} {
		there, err := b.Exists(ctx, gone[0], gone[1])
		if err != nil {
			return err
		}
		if there {
			return fmt.Errorf("%s %s is still there", gone[0], gone[1])
		}
	}
	snapshot, err := kube.Get[kube.Snapshot](ctx, b.Client, "volumesnapshot", "block-2")
	if err != nil {
		return err
	}
	if !snapshot.Status.ReadyToUse {
		return errors.New("the base of the next backup is not ready")
	}
	return b.everythingDeleted(ctx)
}
