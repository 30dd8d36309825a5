//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// step is one thing that users do. It returns when the cluster has done it, or an error.
type step struct {
	name string
	run  func(s *story, ctx context.Context) error
}

// story is what the steps tell each other.
type story struct {
	kube.Client
	t   *testing.T
	env *env
	// sums has the checksum of the data that each pod must find.
	sums map[string]string
	// examples is the folder of the manifests that the story applies.
	examples string
	// at is the node of the first pod.
	at string
	// held and room are how many volumes and snapshots there were when the story began, and the room that
	// the nodes had.
	held int
	room map[string]int64
}

// durations is the file that says how long each step took without a saboteur, so that he strikes in
// its middle.
func (p place) durations(t *testing.T) string {
	t.Helper()
	return filepath.Join(reports(t), "durations-"+p.cloud+".json")
}

// usual reads how long a step takes when nobody disturbs it.
func (p place) usual(t *testing.T, name string) time.Duration {
	t.Helper()
	var seconds map[string]float64
	text, err := os.ReadFile(p.durations(t))
	if err == nil {
		err = json.Unmarshal(text, &seconds)
	}
	if err != nil || seconds[name] == 0 {
		return 3 * time.Second
	}
	return time.Duration(seconds[name] * float64(time.Second))
}

// TestFirst is what a newcomer does first: a pod runs on a claim and keeps its data over a restart.
func TestFirst(t *testing.T) {
	s := begin(t, "first")
	start := time.Now()
	for _, st := range s.env.steps[:2] {
		if err := st.run(s, t.Context()); err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		t.Logf("%s: done after %.1f s", st.name, time.Since(start).Seconds())
	}
}

// TestStory goes through all steps.
func TestStory(t *testing.T) {
	s := begin(t, "story")
	text, err := json.Marshal(tell(t, s, nil))
	if err == nil {
		err = os.WriteFile(s.env.durations(t), text, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestSabotage goes through all steps while the driver's pods are deleted in the middle of each: with
// time to end, and without.
func TestSabotage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CLOUDBLOCK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CLOUDBLOCK_SEED=%d", seed)
	for _, force := range []bool{false, true} {
		name := map[bool]string{false: "gently", true: "by force"}[force]
		t.Run("pods deleted "+name, func(t *testing.T) {
			s := begin(t, "sabotage")
			tell(t, s, &saboteur{driver: s.env.driver, random: rand.New(rand.NewPCG(seed, 1)), force: force})
		})
	}
}

// TestPatrol goes through all steps while one pod of the controllers is deleted every 20 s: often enough
// that most steps meet a controller that has just begun.
func TestPatrol(t *testing.T) {
	s := begin(t, "patrol")
	ctx, stop := context.WithCancel(t.Context())
	var patrols sync.WaitGroup
	for _, w := range s.env.driver.workloads {
		if w.Kind == "Deployment" {
			patrols.Go(func() {
				t.Logf("%d pods of %s were deleted", s.env.driver.DeleteEvery(ctx, w.Selector(), 20*time.Second), w.Metadata.Name)
			})
		}
	}
	t.Cleanup(func() {
		stop()
		patrols.Wait()
	})
	tell(t, s, nil)
}

// TestNothingLeft looks for volumes, snapshots and loop devices that belong to nothing.
func TestNothingLeft(t *testing.T) {
	e := connect(t)
	if err := e.nothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}

// begin prepares a story in a namespace of its own.
func begin(t *testing.T, name string) *story {
	t.Helper()
	e := connect(t)
	if left, err := e.leftOvers(t.Context()); err != nil {
		t.Fatal(err)
	} else if len(left) > 0 {
		t.Fatalf("something is left over before the test begins: %s", strings.Join(left, "; "))
	}
	client := e.namespace(t, name)
	s := &story{Client: client, t: t, env: e, examples: e.examples(t, client.Namespace), sums: map[string]string{}}
	held, _, err := e.store.look(t.Context())
	must(t, err)
	s.held = len(held)
	if s.room, err = e.rooms(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// tell runs the steps one after the other.
func tell(t *testing.T, s *story, enemy *saboteur) map[string]float64 {
	took := map[string]float64{}
	for _, st := range s.env.steps {
		s.stage(t, st.name, func(ctx context.Context) error {
			start := time.Now()
			var strike chan error
			if enemy != nil {
				strike = make(chan error, 1)
				moment := enemy.moment(s.env.usual(s.t, st.name))
				s.Log("the driver's pods are deleted after %.1f s", moment.Seconds())
				go func() { strike <- enemy.strike(ctx, moment) }()
			}
			err := st.run(s, ctx)
			if enemy != nil {
				if err := <-strike; err != nil {
					s.t.Errorf("delete the driver's pods: %v", err)
				}
			}
			if err != nil {
				return err
			}
			took[st.name] = time.Since(start).Seconds()
			s.Log("%s: %.1f s", st.name, took[st.name])
			return nil
		})
	}
	return took
}

// stage runs a part of a story as a test of its own. If it fails the whole test ends, since the parts after it need it.
func (s *story) stage(t *testing.T, name string, run func(ctx context.Context) error) {
	t.Helper()
	ok := t.Run(name, func(t *testing.T) {
		outer := s.t
		s.t, s.Log = t, t.Logf
		defer func() { s.t, s.Log = outer, outer.Logf }()
		must(t, run(t.Context()))
	})
	if !ok {
		t.FailNow()
	}
}

// wantTwoNodes leaves out what needs another node to go to.
func (s *story) wantTwoNodes() {
	s.t.Helper()
	if len(s.env.nodes) < 2 {
		s.t.Skip("the cluster has one node: there is no other one to go to")
	}
}

// apply applies an example and returns the names of what it made, by kind.
func (s *story) apply(ctx context.Context, file string) (map[string]string, error) {
	objects, err := s.Apply(ctx, filepath.Join(s.examples, file))
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, o := range objects {
		names[o.Kind] = o.Metadata.Name
	}
	return names, nil
}

// run applies an example that has a pod and waits until the pod is ready.
func (s *story) run(ctx context.Context, file string) (kube.Pod, error) {
	names, err := s.apply(ctx, file)
	if err != nil {
		return kube.Pod{}, err
	}
	if names["Pod"] == "" {
		return kube.Pod{}, fmt.Errorf("%s has no pod, only %v", file, names)
	}
	return s.UntilReady(ctx, names["Pod"], patience)
}

// podOf reads the pod of an example and its name. Applying the whole file again would also ask for the
// claim's first size.
func (s *story) podOf(ctx context.Context, file string) (json.RawMessage, string, error) {
	pods, err := s.Read(ctx, filepath.Join(s.examples, file), "Pod")
	if err != nil {
		return nil, "", err
	}
	if len(pods) != 1 {
		return nil, "", fmt.Errorf("%s has %d pods, want one", file, len(pods))
	}
	var o kube.Object
	err = json.Unmarshal(pods[0], &o)
	return pods[0], o.Metadata.Name, err
}

// ready returns the pod of an example that was applied before.
func (s *story) ready(ctx context.Context, file string) (kube.Pod, error) {
	_, name, err := s.podOf(ctx, file)
	if err != nil {
		return kube.Pod{}, err
	}
	return s.UntilReady(ctx, name, patience)
}

// again deletes the pod of an example, waits until it is gone and makes it again.
func (s *story) again(ctx context.Context, file string) (kube.Pod, error) {
	raw, name, err := s.podOf(ctx, file)
	if err != nil {
		return kube.Pod{}, err
	}
	if err := s.end(ctx, name); err != nil {
		return kube.Pod{}, err
	}
	if err := s.Create(ctx, raw); err != nil {
		return kube.Pod{}, err
	}
	return s.UntilReady(ctx, name, patience)
}

// end deletes a pod and waits until it is gone.
func (s *story) end(ctx context.Context, pod string) error {
	if err := s.Delete(ctx, "pod", pod); err != nil {
		return err
	}
	return s.UntilGone(ctx, "pod", pod, patience)
}
