//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// TestStolenToken takes the driver's token from a node of local, as root there can. Kubernetes refuses each write by which it
// would delete what belongs to others, or have the kubelet read a Secret that no class names. The driver works before and
// after, with the same token.
func TestStolenToken(t *testing.T) {
	s := begin(t, "token")
	s.env.steps = []step{
		{"a claim and a pod with data", (*story).claimAndPod},
		{"xfs grows while the pod runs", growsOnline("xfs.yaml")},
		{"snapshot of a volume in use", (*story).snapshot},
		{"a stolen token", (*story).stolenToken},
		{"restore into a larger claim", (*story).restore},
		{"another volume grows and is deleted", func(s *story, ctx context.Context) error { return s.life(ctx, "after") }},
		{"another snapshot", (*story).snapshotAgain},
		{"everything deleted", (*story).everythingDeleted},
	}
	tell(t, s, nil)
}

// snapshotAgain deletes the snapshot of the example and takes it again.
func (s *story) snapshotAgain(ctx context.Context) error {
	made, err := s.apply(ctx, "snapshot.yaml")
	if err != nil {
		return err
	}
	if err := s.Delete(ctx, "volumesnapshot", made["VolumeSnapshot"]); err != nil {
		return err
	}
	if err := s.UntilGone(ctx, "volumesnapshot", made["VolumeSnapshot"], patience); err != nil {
		return err
	}
	return s.snapshot(ctx)
}

// target is an object, and how the token's rights let it be written.
type target struct {
	args []string
	// object is written whole; without one, the change alone is.
	object map[string]any
}

// write writes the object with a change, which is a JSON merge patch.
func (t target) write(ctx context.Context, c kube.Client, change string, more ...string) error {
	args := slices.Concat(t.args, more)
	if t.object == nil {
		_, err := c.Run(ctx, append(args, "--type", "merge", "--patch", change)...)
		return err
	}
	var patch map[string]any
	if err := json.Unmarshal([]byte(change), &patch); err != nil {
		return err
	}
	return c.Send(ctx, merged(t.object, patch), args...)
}

// merged returns an object with a JSON merge patch (RFC 7396).
func merged(object, patch map[string]any) map[string]any {
	result := maps.Clone(object)
	for key, value := range patch {
		inner, both := value.(map[string]any)
		switch outer, _ := object[key].(map[string]any); {
		case value == nil:
			delete(result, key)
		case both:
			result[key] = merged(maps.Collect(maps.All(outer)), inner)
		default:
			result[key] = value
		}
	}
	return result
}

const (
	// noOwner is an owner that does not exist: the garbage collector deletes what has no other.
	noOwner = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"0"}]}}`
	// cloudRoot stands for a Secret that no class names.
	cloudRoot = `{"namespace":"kube-system","name":"cloud-root"}`
)

// attacks are what somebody with the token of a node tries: on which target, what change, and the policy that refuses it.
var attacks = []struct{ name, target, change, policy string }{
	{"the garbage collector deletes a claim of another driver", "claim of another driver", noOwner, "claims"},
	{"a claim of another driver is lost", "claim of another driver", `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":""}}}`, "claims"},
	{"the status of a claim of another driver says that it is lost", "status of that claim", `{"status":{"phase":"Lost"}}`, "claims"},
	{"a volume with any Secret to stage it", "new volume", `{"spec":{"csi":{"nodeStageSecretRef":` + cloudRoot + `}}}`, "(volumes|classes)"},
	{"a volume with any Secret to publish it", "new volume", `{"spec":{"csi":{"nodePublishSecretRef":` + cloudRoot + `}}}`, "volumes"},
	{"a volume with any Secret to grow it", "new volume", `{"spec":{"csi":{"nodeExpandSecretRef":` + cloudRoot + `}}}`, "(volumes|classes)"},
	{"a volume with any Secret to attach it", "new volume", `{"spec":{"csi":{"controllerPublishSecretRef":` + cloudRoot + `}}}`, "volumes"},
	{
		"a volume with a Secret of the driver's namespace that its class does not name", "new volume",
		`{"spec":{"csi":{"nodeStageSecretRef":{"namespace":"cloudblock-local","name":"another"}}}}`, "classes",
	},
	{"a volume with mount options that its class does not have", "new volume", `{"spec":{"mountOptions":["suid"]}}`, "classes"},
	{"a volume for every node", "new volume", `{"spec":{"nodeAffinity":null}}`, "volumes"},
	{"a volume of another node", "new volume", `{"spec":{"csi":{"volumeHandle":"another-node/0123"}}}`, "volumes"},
	{"a folder of the node", "new volume", `{"spec":{"csi":null,"hostPath":{"path":"/"}}}`, "volumes"},
	{"the garbage collector deletes a new volume", "new volume", noOwner, "volumes"},
	{"the garbage collector deletes a volume", "volume", noOwner, "volumes"},
	{"a volume's data stay after its claim", "volume", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`, "volumes"},
	{"the garbage collector deletes a snapshot", "snapshot", noOwner, "snapshot-sources"},
	{"a snapshot is let go of", "snapshot", `{"metadata":{"finalizers":null}}`, "snapshot-sources"},
	{"a snapshot's data stay after it", "content of the snapshot", `{"spec":{"deletionPolicy":"Retain"}}`, "snapshots"},
}

// stolenToken tries the attacks with the token of the first pod's node.
func (s *story) stolenToken(ctx context.Context) error {
	thief, err := s.thief(ctx, s.at)
	if err != nil {
		return err
	}
	targets, err := s.targets(ctx)
	if err != nil {
		return err
	}
	// So that what refuses the attacks is nothing but their changes.
	for name, target := range targets {
		if err := target.write(ctx, thief, "{}", "--dry-run=server"); err != nil {
			return fmt.Errorf("%s as the driver writes it: %w", name, err)
		}
	}
	var all []error
	for _, a := range attacks {
		answer := "it is done"
		if err := targets[a.target].write(ctx, thief, a.change); err != nil {
			answer = err.Error()
		}
		policy := regexp.MustCompile(`ValidatingAdmissionPolicy 'cloudblock-local-` + a.policy + `' with binding .* denied request: .*`)
		refusal := policy.FindString(answer)
		if refusal == "" {
			all = append(all, fmt.Errorf("%s: the answer is %q, want a refusal by the policy cloudblock-local-%s", a.name, answer, a.policy))
			continue
		}
		s.Log("%s: %s", a.name, refusal)
	}
	return errors.Join(all...)
}

// thief returns a client whose token is that of the driver's pod on a node, read from the node's disk.
func (s *story) thief(ctx context.Context, node string) (kube.Client, error) {
	pods, err := s.env.driver.allReady(ctx)
	if err != nil {
		return kube.Client{}, err
	}
	at := slices.IndexFunc(pods, func(p kube.Pod) bool { return p.Spec.NodeName == node })
	if at < 0 {
		return kube.Client{}, fmt.Errorf("the driver has no pod on %s", node)
	}
	token, err := readInMachine(ctx, node, "cat /var/lib/kubelet/pods/"+pods[at].Metadata.UID+"/volumes/kubernetes.io~projected/*/token")
	if err != nil {
		return kube.Client{}, err
	}
	thief := s.Client
	thief.Kubeconfig = configured(s.t, s.Client)
	for _, args := range [][]string{{"set-credentials", "thief", "--token=" + token}, {"set-context", "--current", "--user=thief"}} {
		if _, err := thief.Run(ctx, append([]string{"config"}, args...)...); err != nil {
			return thief, err
		}
	}
	return thief, nil
}

// targets are the objects of the attacks.
func (s *story) targets(ctx context.Context) (map[string]target, error) {
	for name, class := range map[string]string{"waiting": s.env.classes["ext4"], "others": "another-driver"} {
		if err := s.Create(ctx, newClaim(claimOptions{name: name, class: class, size: gib})); err != nil {
			return nil, err
		}
	}
	pod, err := s.source(ctx)
	if err != nil {
		return nil, err
	}
	name, _, _ := pod.Claimed()
	claim, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", name)
	if err != nil {
		return nil, err
	}
	volume, err := s.newVolume(ctx, claim.Spec.VolumeName, "waiting")
	if err != nil {
		return nil, err
	}
	others, err := kube.Get[map[string]any](ctx, s.Client, "pvc", "others")
	if err != nil {
		return nil, err
	}
	made, err := s.apply(ctx, "snapshot.yaml")
	if err != nil {
		return nil, err
	}
	// With what kubectl noted when it applied the snapshot, it would note more when it replaces it.
	if _, err := s.Run(ctx, "annotate", "volumesnapshot", made["VolumeSnapshot"], "kubectl.kubernetes.io/last-applied-configuration-"); err != nil {
		return nil, err
	}
	snapshot, err := kube.Get[map[string]any](ctx, s.Client, "volumesnapshot", made["VolumeSnapshot"])
	if err != nil {
		return nil, err
	}
	content, err := s.Run(ctx, "get", "volumesnapshot", made["VolumeSnapshot"], "--output", "jsonpath={.status.boundVolumeSnapshotContentName}")
	return map[string]target{
		"claim of another driver": {args: []string{"replace"}, object: others},
		"status of that claim": {
			args:   []string{"apply", "--server-side", "--subresource", "status"}, // kubectl patch would read it, which the token may not
			object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "others"}},
		},
		"new volume":              {args: []string{"create"}, object: volume},
		"volume":                  {args: []string{"patch", "pv", claim.Spec.VolumeName}},
		"snapshot":                {args: []string{"replace"}, object: snapshot},
		"content of the snapshot": {args: []string{"patch", "volumesnapshotcontent", content}},
	}, err
}

// newVolume is a volume for a claim that waits for a pod, as the provisioner made the one that it is like.
func (s *story) newVolume(ctx context.Context, like, name string) (map[string]any, error) {
	claim, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", name)
	if err != nil {
		return nil, err
	}
	volume, err := kube.Get[map[string]any](ctx, s.Client, "pv", like)
	if err != nil {
		return nil, err
	}
	var change map[string]any
	err = json.Unmarshal(fmt.Appendf(nil, `{
		"metadata": {"name": "pvc-%s", "uid": null, "resourceVersion": null, "creationTimestamp": null},
		"spec": {
			"claimRef": {"name": %q, "uid": %q, "resourceVersion": null},
			"csi": {"volumeHandle": "%s/00000000-0000-4000-8000-000000000000"}
		},
		"status": null
	}`, claim.Metadata.UID, name, claim.Metadata.UID, s.at), &change)
	return merged(volume, change), err
}
