//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	proved = "cloudblock-proved-restore"

	// fillAndUse writes files and their checksums, and goes on writing: the snapshot has a journal that is not replayed.
	fillAndUse = `cd /data && mkdir -p a/b && for i in 1 2 3 4 5 6 7 8 9; do dd if=/dev/urandom of=a/b/file$i bs=64k count=$i 2>/dev/null; done &&
sha256sum a/b/* >SHA256SUMS && sync && (while :; do date >now; mkdir -p new; mv now new/; sleep 0.2; done >/dev/null 2>&1 &)`

	// breakSuperblock changes a byte of the superblock that its checksum covers.
	breakSuperblock = `printf '\377' | dd of=/dev/volume bs=1 seek=120 conv=notrunc,fsync 2>/dev/null`
)

// TestProvedRestore is "Prove a restore" of docs/backup.md: the newest snapshot of an xfs in use is Complete, the one of a damaged volume
// Failed with the finding, one that is too old Failed, and whatever is killed and when, no volume stays.
func TestProvedRestore(t *testing.T) {
	s := begin(t, "proved")
	ctx := t.Context()
	size := s.env.round(512 * mib)
	if _, err := s.placed(ctx, claimOptions{name: "data", class: s.env.classes["xfs"], size: size}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(ctx, "data", "", fillAndUse); err != nil {
		t.Fatal(err)
	}
	must(t, s.snapshotOf(ctx, "intact", "data"))
	must(t, s.applyProof(t, "data", "48h"))
	before, err := s.env.objectsOf(ctx, s.Namespace)
	must(t, err)
	log := s.prove(t, "intact", "Complete")
	for _, want := range []string{"journal", "replayed", "9 files compared with SHA256SUMS", "intact"} {
		if !strings.Contains(log, want) {
			t.Errorf("the report does not have %q:\n%s", want, log)
		}
	}
	for _, kill := range []func(*testing.T){s.killEachStep, s.killTheCheck} {
		kill(t)
		must(t, s.untilOnly(ctx, before))
	}
	s.provesDamage(t, size)
	must(t, s.applyProof(t, "data", "1s"))
	if log := s.prove(t, "old", "Failed"); !strings.Contains(log, "are snapshots still taken") {
		t.Errorf("the report does not say that the snapshot is old:\n%s", log)
	}
}

// provesDamage breaks a copy of the volume through its raw device, and takes the snapshot of that. The annotation that lets the snapshot
// become a raw block volume is there since the first run.
func (s *story) provesDamage(t *testing.T, size int64) {
	t.Helper()
	ctx := t.Context()
	claim := newClaim(claimOptions{name: "broken", class: s.env.classes["xfs"], size: size})
	spec := claim["spec"].(map[string]any)
	spec["volumeMode"] = "Block"
	spec["dataSource"] = map[string]any{"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "intact"}
	must(t, s.Create(ctx, list(claim, devicePod("broken", "broken", volumePath))))
	if _, err := s.UntilReady(ctx, "broken", patience); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(ctx, "broken", "", breakSuperblock); err != nil {
		t.Fatal(err)
	}
	must(t, s.snapshotOf(ctx, "damaged", "broken"))
	must(t, s.applyProof(t, "broken", "48h"))
	before, err := s.env.objectsOf(ctx, s.Namespace)
	must(t, err)
	if log := s.prove(t, "damaged", "Failed"); !strings.Contains(log, "finding") || !strings.Contains(log, "superblock") {
		t.Errorf("the report does not have the finding:\n%s", log)
	}
	if err := s.untilOnly(ctx, before); err != nil {
		t.Error(err)
	}
}

// snapshotOf takes a snapshot of a claim and waits until it is ready.
func (s *story) snapshotOf(ctx context.Context, name, claim string) error {
	err := s.Create(ctx, map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"volumeSnapshotClassName": "cloudblock-" + s.env.cloud, "source": map[string]any{"persistentVolumeClaimName": claim}},
	})
	if err != nil {
		return err
	}
	_, err = s.Run(ctx, "wait", "volumesnapshot/"+name, "--for=jsonpath={.status.readyToUse}=true", "--timeout="+patience.String())
	return err
}

// applyProof applies the example for a claim, changed as its first lines say. The Job of the check goes after a minute instead of
// five, and no schedule starts it.
func (s *story) applyProof(t *testing.T, claim, maxAge string) error {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "deploy/examples/proved-restore.yaml"))
	if err != nil {
		return err
	}
	words := strings.NewReplacer(
		"namespace: cloudblock-examples", "namespace: "+s.Namespace, "CLAIM, value: data", "CLAIM, value: "+claim,
		"MAX_AGE, value: 48h", "MAX_AGE, value: "+maxAge,
		"CLASS, value: cloudblock-local", "CLASS, value: "+s.env.classes["xfs"],
		"ghcr.io/cloudblock-csi/node:unreleased", s.env.installation(t).fresh["node"],
		"ttlSecondsAfterFinished: 300", "ttlSecondsAfterFinished: 60", "concurrencyPolicy: Forbid", "suspend: true",
	)
	path := filepath.Join(t.TempDir(), "proved-restore.yaml")
	write(t, path, words.Replace(string(text)))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, kind := range []string{"clusterrolebinding", "clusterrole"} {
			if _, err := s.env.Run(ctx, "delete", kind, proved, "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	_, err = s.Run(t.Context(), "apply", "--filename="+path)
	return err
}

// start starts a Job of the CronJob by hand.
func (s *story) start(t *testing.T, job string) {
	t.Helper()
	if _, err := s.Run(t.Context(), "create", "job", "--from=cronjob/"+proved, job); err != nil {
		t.Fatal(err)
	}
}

// prove runs a Job until it has a condition, and returns its log.
func (s *story) prove(t *testing.T, job, condition string) string {
	t.Helper()
	s.start(t, job)
	_, err := s.Run(t.Context(), "wait", "job/"+job, "--for=condition="+condition, "--timeout="+(2*patience).String())
	log, logErr := s.Run(t.Context(), "logs", "job/"+job, "--all-containers", "--ignore-errors")
	if err != nil || logErr != nil {
		t.Fatalf("the Job is not %s: %v\n%s%v", condition, err, log, logErr)
	}
	return log
}

// killEachStep kills the pod of a Job as soon as a step has begun, for every step.
func (s *story) killEachStep(t *testing.T) {
	t.Helper()
	for _, step := range []string{"newest", "allow", "write", "restore", "wait", "report", "verdict"} {
		job := "kill-" + step
		s.start(t, job)
		kind := "initContainerStatuses"
		if step == "verdict" {
			kind = "containerStatuses"
		}
		path := fmt.Sprintf(`jsonpath={.items[*].status.%s[?(@.name==%q)].state}`, kind, step)
		err := s.Until(t.Context(), step+" of "+job+" begins", 2*patience, func(ctx context.Context) (bool, string, error) {
			state, err := s.Run(ctx, "get", "pods", "--selector=batch.kubernetes.io/job-name="+job, "-o", path)
			return strings.Contains(state, "running") || strings.Contains(state, "terminated"), state, err
		})
		must(t, err)
		must(t, s.kill(t.Context(), "pods", "--selector=batch.kubernetes.io/job-name="+job))
	}
}

// killTheCheck kills, while the check waits or runs, its pod, its Job, and the Job that it belongs to.
func (s *story) killTheCheck(t *testing.T) {
	t.Helper()
	for job, victim := range map[string][]string{
		"kill-pod":   {"pods", "--selector=batch.kubernetes.io/job-name=kill-pod-check"},
		"kill-check": {"jobs", "kill-check-check"},
		"kill-job":   {"jobs", "kill-job"},
	} {
		s.start(t, job)
		err := s.Until(t.Context(), "the check of "+job+" has a pod", patience, func(ctx context.Context) (bool, string, error) {
			pods, err := s.Run(ctx, "get", "pods", "--selector=batch.kubernetes.io/job-name="+job+"-check", "-o", "name")
			return pods != "", pods, err
		})
		must(t, err)
		must(t, s.kill(t.Context(), victim...))
	}
}

// kill deletes without a grace period: the kubelet kills with SIGKILL.
func (s *story) kill(ctx context.Context, what ...string) error {
	_, err := s.Run(ctx, slices.Concat([]string{"delete"}, what, []string{"--grace-period=0", "--force", "--wait=false"})...)
	return err
}

// untilOnly waits until no Job of a check is left, and no claim and volume but those of before.
func (s *story) untilOnly(ctx context.Context, before []string) error {
	return s.Until(ctx, "nothing of the checks is left", 3*patience, func(ctx context.Context) (bool, string, error) {
		pods, err := s.Run(ctx, "get", "pods", "--selector=app.kubernetes.io/name="+proved+"-check", "-o", "name")
		if err != nil || pods != "" {
			return false, pods, err
		}
		now, err := s.env.objectsOf(ctx, s.Namespace)
		more := slices.DeleteFunc(now, func(o string) bool { return slices.Contains(before, o) })
		return err == nil && len(more) == 0, strings.Join(more, ", "), err
	})
}
