package manifests_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fullTag is a version that names one image for ever.
var fullTag = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+/[a-z0-9/-]+:v[0-9]+\.[0-9]+\.[0-9]+$`)

// unreleased are the driver's own images in the tree. No build has this tag (build/names.sh refuses to push
// it), so no node can have an older image of that name.
var unreleased = regexp.MustCompile(`^ghcr\.io/cloudblock-csi/(controller|node|lvm):unreleased$`)

// secretWord begins the name of a flag that would hold a secret.
var secretWord = regexp.MustCompile(`(?i)^--[a-z-]*(token|password|secret|key)=`)

// hostPaths are the only folders of a node that a pod of ours may see.
var hostPaths = regexp.MustCompile(`^(/dev|/sys|/sys/fs/cgroup|/run/cryptsetup|/var/lib/cloudblock-csi/pool|/etc/lvm|/run/lock/lvm|/run/lvm|/run/cloudblock-csi|` +
	`(/var/lib/kubelet|` + otherKubelet + `)/(pods|plugins_registry|plugins/kubernetes\.io/csi|plugins/[a-z.]+))$`)

// withToken are the containers that talk to the Kubernetes API; no other one gets a token.
var withToken = []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "csi-snapshot-metadata"}

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// forEachContainer runs a rule over every container that there is.
func forEachContainer(t *testing.T, rule func(pod corev1.PodSpec, c corev1.Container) error) {
	t.Helper()
	forEachSet(t, func(t *testing.T, o objects) {
		for name, pod := range o.pods {
			if len(pod.InitContainers)+len(pod.EphemeralContainers) > 0 {
				t.Errorf("%s has containers that this test does not look at", name)
			}
			for _, c := range pod.Containers {
				if err := rule(pod, c); err != nil {
					t.Errorf("%s, container %s: %v", name, c.Name, err)
				}
			}
		}
	})
}

func TestEveryImageHasAFullVersionAndOnlyOne(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		versions := map[string]string{}
		for name, pod := range o.pods {
			for _, c := range pod.Containers {
				image, version, _ := strings.Cut(c.Image, ":")
				rule := fullTag
				if strings.HasPrefix(c.Image, "ghcr.io/cloudblock-csi/") {
					rule = unreleased
				}
				if !rule.MatchString(c.Image) {
					t.Errorf("%s: image %s, want %s", name, c.Image, rule)
				}
				if had := cmp.Or(versions[image], version); had != version {
					t.Errorf("%s: image %s is used as %s and as %s", name, image, had, version)
				}
				versions[image] = version
				if c.ImagePullPolicy != corev1.PullIfNotPresent {
					t.Errorf("%s: container %s pulls %s although its tag never changes", name, c.Name, c.ImagePullPolicy)
				}
			}
		}
	})
}

func TestEveryContainerSaysWhatItNeeds(t *testing.T) {
	forEachContainer(t, func(pod corev1.PodSpec, c corev1.Container) error {
		r := c.Resources
		switch {
		case pod.NodeSelector[corev1.LabelOSStable] != "linux":
			return fmt.Errorf("may run on a node without Linux")
		case r.Requests.Cpu().IsZero(), r.Requests.Memory().IsZero():
			return fmt.Errorf("requests no CPU or no memory: %v", r.Requests)
		case r.Limits.Memory().IsZero():
			return fmt.Errorf("has no limit of memory")
		case !r.Limits.Cpu().IsZero():
			return fmt.Errorf("has a limit of CPU, which only makes others wait")
		}
		return nil
	})
}

func TestContainersAreConfined(t *testing.T) {
	forEachContainer(t, func(pod corev1.PodSpec, c corev1.Container) error {
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			return fmt.Errorf("its root is writable")
		}
		if pod.HostNetwork && !onLoopback(pod) || pod.HostPID || pod.HostIPC {
			return fmt.Errorf("it shares a namespace of the node")
		}
		if s.Privileged != nil && *s.Privileged {
			if c.Name != "node" && !withLVM(c) {
				return fmt.Errorf("privileged: only the node program and what runs lvm have to be")
			}
			return nil
		}
		switch {
		case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
			return fmt.Errorf("it may gain privileges")
		case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
			return fmt.Errorf("capabilities %v", s.Capabilities)
		case pod.SecurityContext.SeccompProfile == nil || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.SeccompProfile != nil:
			return fmt.Errorf("not under the runtime's seccomp profile")
		}
		return checkUser(pod, c)
	})
}

// withLVM reports whether a container is of the component lvm, whose commands reach the node's disks.
func withLVM(c corev1.Container) bool { return strings.Contains(c.Image, "/lvm:") }

// checkUser allows root where files of root are to be reached, and demands that it is said.
func checkUser(pod corev1.PodSpec, c corev1.Container) error {
	user := cmp.Or(c.SecurityContext.RunAsUser, pod.SecurityContext.RunAsUser)
	nonRoot := cmp.Or(c.SecurityContext.RunAsNonRoot, pod.SecurityContext.RunAsNonRoot)
	if user == nil {
		return fmt.Errorf("which user it runs as is left to the image")
	}
	if *user != 0 {
		if nonRoot == nil || !*nonRoot {
			return fmt.Errorf("runAsNonRoot is not set")
		}
		return nil
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return nodesFolder(pod, m.Name) != "" }) {
		return fmt.Errorf("root although it reaches no folder of the node")
	}
	return nil
}

// nodesFolder returns the folder of the node that a volume of a pod is; "" if it is none.
func nodesFolder(pod corev1.PodSpec, volume string) string {
	for _, v := range pod.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

// docs/contributing/decisions/deployment.md, 15
func TestNodesHaveTheirNextPodSoon(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		for name, pod := range o.pods {
			if !strings.HasPrefix(name, "DaemonSet/") {
				continue
			}
			for _, c := range pod.Containers {
				for _, arg := range c.Args {
					if strings.Contains(arg, "ReleaseLeaderElectionOnExit=true") {
						t.Errorf("%s, container %s: with %s it does not end before it is killed, and until then the node has no driver", name, c.Name, arg)
					}
				}
			}
		}
	})
}

// isCertificate reports whether a volume is the certificate of the sidecar for changed blocks, which no other container mounts.
func isCertificate(pod corev1.PodSpec, v corev1.Volume) bool {
	for _, c := range pod.Containers {
		has := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		if has != (c.Name == "csi-snapshot-metadata") {
			return false
		}
	}
	return v.Secret.SecretName == "cloudblock-snapshot-metadata"
}

func TestPodsReachOnlyTheFoldersTheyNeed(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		for name, pod := range o.pods {
			for _, v := range pod.Volumes {
				if v.HostPath != nil && !hostPaths.MatchString(v.HostPath.Path) {
					t.Errorf("%s mounts the node's %s", name, v.HostPath.Path)
				}
				if v.Secret != nil && !strings.Contains(name, "controller") && !isCertificate(pod, v) {
					t.Errorf("%s mounts the secret %s", name, v.Secret.SecretName)
				}
			}
		}
	})
	forEachContainer(t, func(_ corev1.PodSpec, c corev1.Container) error {
		for _, m := range c.VolumeMounts {
			if both := m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional; both != (c.Name == "node" &&
				(m.Name == "pods-dir" || m.Name == "staging-dir")) {
				return fmt.Errorf("propagation %v of %s", m.MountPropagation, m.MountPath)
			}
		}
		return nil
	})
}

// The node program of `local` writes settings of loop devices into /sys. containerd 1.6 and 1.7 mount their own one
// read-only, also in privileged containers; no other container and no other cloud writes there.
func TestOnlyTheNodeProgramOfLocalHasTheNodesSys(t *testing.T) {
	forEachContainer(t, func(pod corev1.PodSpec, c corev1.Container) error {
		want := c.Name == "node" && slices.Contains(c.Args, "--cloud=local")
		if got := writesNodesSys(pod, c); got != want {
			return fmt.Errorf("it can write to the node's /sys: %v, want %v", got, want)
		}
		return nil
	})
}

// writesNodesSys reports whether a container has the node's /sys at /sys, writable.
func writesNodesSys(pod corev1.PodSpec, c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == "/sys" && !m.ReadOnly && m.SubPath == "" && nodesFolder(pod, m.Name) == "/sys"
	})
}

func TestOnlySidecarsOfTheAPIHoldAToken(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		for name, pod := range o.pods {
			account, known := o.serviceAccounts[pod.ServiceAccountName]
			if !known {
				t.Errorf("%s: no service account %q", name, pod.ServiceAccountName)
			}
			if strings.HasSuffix(name, "/snapshot-controller") {
				continue // one container, which is all about the API
			}
			for _, auto := range []*bool{pod.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
				if auto == nil || *auto {
					t.Errorf("%s: the token is mounted into every container", name)
				}
			}
			for _, c := range pod.Containers {
				has := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath && m.ReadOnly })
				if has != slices.Contains(withToken, c.Name) {
					t.Errorf("%s: container %s has a token: %v", name, c.Name, has)
				}
			}
		}
	})
}

// A controller that is not ready, because its cloud does not answer, must not keep its node from being drained.
func TestBudgetsLetUnreadyPodsGo(t *testing.T) {
	checked := 0
	for _, overlay := range overlays(t) {
		o := parse(t, render(t, sets()[overlay]))
		if _, has := o.pods["Deployment/cloudblock-controller"]; !has {
			continue // its controller is in the DaemonSet
		}
		checked++
		if budgets := o.budgets; len(budgets) != 1 || budgets[0].Spec.UnhealthyPodEvictionPolicy == nil ||
			*budgets[0].Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
			t.Errorf("%s: the budgets are %+v", overlay, budgets)
		}
	}
	if checked != len(overlays(t))-1 {
		t.Errorf("%d overlays have a controller of their own, want all but local", checked)
	}
}

// A pool without a folder made for it would be on the root disk of the node.
func TestNoPoolIsCreatedOnANode(t *testing.T) {
	pools := 0
	for name, pod := range parse(t, render(t, sets()["local"])).pods {
		for _, v := range pod.Volumes {
			if v.HostPath != nil && v.Name == "pool" {
				pools++
				if v.HostPath.Type == nil || *v.HostPath.Type != corev1.HostPathDirectory {
					t.Errorf("%s creates the pool's folder: %v", name, v.HostPath.Type)
				}
			}
		}
	}
	if pools != 1 {
		t.Errorf("found %d pools", pools)
	}
}

func TestNoSecretIsInAnArgumentOrTheEnvironment(t *testing.T) {
	forEachContainer(t, func(_ corev1.PodSpec, c corev1.Container) error {
		for _, arg := range append(slices.Clone(c.Command), c.Args...) {
			if secretWord.MatchString(arg) {
				return fmt.Errorf("argument %s", arg)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				return fmt.Errorf("environment variable %s is a secret; mount it as a file, which can change", e.Name)
			}
		}
		if from, own := c.EnvFrom, strings.HasPrefix(c.Image, "ghcr.io/cloudblock-csi/"); len(from) > 1 || len(from) == 1 != own {
			return fmt.Errorf("its environment comes from %v", from)
		} else if own && (from[0].SecretRef != nil || !settingsOf(from[0])) {
			return fmt.Errorf("its settings come from %v", from)
		}
		return nil
	})
}

// settingsOf reports whether variables come from the optional ConfigMap with an operator's settings.
func settingsOf(from corev1.EnvFromSource) bool {
	m := from.ConfigMapRef
	return m != nil && from.Prefix == "CLOUDBLOCK_FLAG_" && strings.HasPrefix(m.Name, "cloudblock-settings") && m.Optional != nil && *m.Optional
}

// onLoopback reports whether each port of a pod in the node's network is on the loopback address, for the probes too.
func onLoopback(pod corev1.PodSpec) bool {
	for _, c := range pod.Containers {
		for _, p := range c.Ports {
			if !slices.Contains(c.Args, fmt.Sprintf("--http-endpoint=127.0.0.1:%d", p.ContainerPort)) {
				return false
			}
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p != nil && p.HTTPGet.Host != "127.0.0.1" {
				return false
			}
		}
	}
	return true
}

func TestProbesAndPortsFitTogether(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		for name, pod := range o.pods {
			numbers := map[int32]string{}
			for _, c := range pod.Containers {
				for _, p := range c.Ports {
					if other, taken := numbers[p.ContainerPort]; taken {
						t.Errorf("%s: %s and %s listen on %d", name, other, c.Name, p.ContainerPort)
					}
					numbers[p.ContainerPort] = c.Name
					want := fmt.Sprintf("--http-endpoint=:%d", p.ContainerPort)
					if p.Name == "blocks" { // of the sidecar with an API of its own
						want = fmt.Sprintf("--port=%d", p.ContainerPort)
					}
					if !slices.Contains(c.Args, want) && !pod.HostNetwork {
						t.Errorf("%s: %s names port %d and has no %s", name, c.Name, p.ContainerPort, want)
					}
				}
				if len(c.Ports) == 0 {
					t.Errorf("%s: nothing tells how %s is", name, c.Name)
				}
			}
			for _, c := range pod.Containers {
				for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
					if p != nil && !listens(c, numbers, p.HTTPGet.Port) {
						t.Errorf("%s: a probe of %s asks port %s, which the kubelet does not find", name, c.Name, p.HTTPGet.Port.String())
					}
				}
			}
		}
	})
}

// listens says whether the kubelet finds the port of a container's probe: a name among the ports of
// that container alone, a number among those of the pod.
func listens(c corev1.Container, numbers map[int32]string, port intstr.IntOrString) bool {
	if port.Type == intstr.Int {
		return numbers[port.IntVal] != ""
	}
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal })
}
