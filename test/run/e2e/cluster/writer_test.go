//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// writes is the script of a pod that writes a file each second, with its checksum and its time, until it is asked to
// stop. A write that fails ends the pod, which is not started again.
const writes = `set -e; n=0; cd /data
while [ ! -e stop ]; do
  n=$((n+1))
  dd if=/dev/urandom of=$n bs=4k count=1 conv=fsync 2>/dev/null
  sha256sum $n >>sums
  echo "$n $(date +%s)" >>times
  sleep 1
done
sync
touch stopped
sleep 1000000`

// writer is such a pod.
type writer struct {
	pod    kube.Pod
	volume string
}

// startWriter runs a writer on a claim of its name.
func (s *story) startWriter(ctx context.Context, name string) (writer, error) {
	pod := newPod(name, name, "")
	pod["spec"].(map[string]any)["restartPolicy"] = "Never"
	mainOf(pod)["command"] = []string{"sh", "-c", writes}
	if err := s.Create(ctx, newClaim(claimOptions{name: name, class: s.env.classes["ext4"], size: s.env.round(256 * mib)})); err != nil {
		return writer{}, err
	}
	if err := s.Create(ctx, pod); err != nil {
		return writer{}, err
	}
	p, err := s.UntilReady(ctx, name, patience)
	if err != nil {
		return writer{}, err
	}
	claim, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", name)
	return writer{p, claim.Spec.VolumeName}, err
}

// goesOn checks that a writer is the same pod as at its start and still writes.
func (s *story) goesOn(ctx context.Context, w writer) error {
	before, err := s.written(ctx, w.pod.Metadata.Name)
	if err != nil {
		return err
	}
	err = s.Until(ctx, "pod "+w.pod.Metadata.Name+" writes on", patience, func(ctx context.Context) (bool, string, error) {
		now, err := s.written(ctx, w.pod.Metadata.Name)
		return now > before, fmt.Sprintf("%d files", now), err
	})
	if err != nil {
		return err
	}
	return s.wantSamePod(ctx, w.pod)
}

// written returns how many files a writer has written.
func (s *story) written(ctx context.Context, pod string) (int, error) {
	text, err := s.Exec(ctx, pod, "", "touch /data/times; wc -l </data/times")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(text))
}

// stopWriter asks a writer to stop and waits until its last write is on the disk.
func (s *story) stopWriter(ctx context.Context, w writer) error {
	name := w.pod.Metadata.Name
	if err := s.wantSamePod(ctx, w.pod); err != nil {
		return err
	}
	if _, err := s.Exec(ctx, name, "", "touch /data/stop"); err != nil {
		return err
	}
	err := s.Until(ctx, "pod "+name+" has stopped writing", patience, func(ctx context.Context) (bool, string, error) {
		_, err := s.Exec(ctx, name, "", "test -e /data/stopped")
		return err == nil, "", err
	})
	if err != nil {
		return err
	}
	return s.wantWritten(ctx, name)
}

// wholeWriter stops a writer, reads all that it has written through a new mount, and deletes everything.
func (s *story) wholeWriter(ctx context.Context, w writer) error {
	if err := s.stopWriter(ctx, w); err != nil {
		return err
	}
	name := w.pod.Metadata.Name
	if _, err := s.renewed(ctx, name, ""); err != nil {
		return err
	}
	if err := s.wantWritten(ctx, name); err != nil {
		return err
	}
	return s.everythingDeleted(ctx)
}

// wantWritten checks that each file of a writer is there with its content, and that none is left out. It logs the longest
// time between two of them.
func (s *story) wantWritten(ctx context.Context, pod string) error {
	times, err := s.Exec(ctx, pod, "", "cat /data/times")
	if err != nil {
		return err
	}
	files, longest, err := readTimes(times)
	if err != nil {
		return fmt.Errorf("pod %s: %w", pod, err)
	}
	text, err := s.Exec(ctx, pod, "", "cd /data; sha256sum -c sums | grep -c ': OK$'")
	if err != nil {
		return fmt.Errorf("compare the files of pod %s with their checksums: %w", pod, err)
	}
	if good := strings.TrimSpace(text); good != strconv.Itoa(files) {
		return fmt.Errorf("%s of the %d files of pod %s have the content that was written", good, files, pod)
	}
	s.Log("pod %s wrote %d files, all as they were written; the longest time between two was %s", pod, files, longest)
	return nil
}

// readTimes reads lines of a file's number and the second when it was written, and returns their number and the longest
// time between two.
func readTimes(text string) (files int, longest time.Duration, err error) {
	last := int64(0)
	for line := range strings.Lines(text) {
		var number int
		var second int64
		if _, err := fmt.Sscanf(line, "%d %d\n", &number, &second); err != nil {
			return 0, 0, fmt.Errorf("line %d of its times is %q: %w", files+1, line, err)
		}
		if files++; number != files {
			return 0, 0, fmt.Errorf("file %d comes after file %d", number, files-1)
		}
		if files > 1 {
			longest = max(longest, time.Duration(second-last)*time.Second)
		}
		last = second
	}
	if files == 0 {
		return 0, 0, fmt.Errorf("it wrote nothing")
	}
	return files, longest, nil
}
