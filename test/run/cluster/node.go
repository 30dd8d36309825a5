package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/certificates"
)

// node is a machine that runs pods, and what the templates of its files need.
type node struct {
	machine
	number     int
	Dir        string // its files, as it sees them
	PodNetwork string
	PauseImage string
	Newest     bool // see layout
	// Pods is the network of all nodes' pods.
	Pods string
	// ProxyHealth is where kube-proxy reports that it serves.
	ProxyHealth string
}

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// newNode makes the machine, plugs it into the cluster's network and writes its files.
func newNode(ctx context.Context, up *cluster, number int) (*node, error) {
	name := nodeName(number)
	m, err := up.newMachine(ctx, name)
	if err != nil {
		return nil, err
	}
	n := &node{
		machine: m, number: number, Dir: inside("run", name), PodNetwork: podNetwork(number), PauseImage: pauseImage, Newest: up.newest(),
		Pods: podNetworks, ProxyHealth: "127.0.0.1:10256",
	}
	if err := n.plugIn(ctx, up.control); err != nil {
		return nil, err
	}
	return n, n.writeFiles(up.layout, up.authority)
}

// plugIn joins the node to the bridge of the control machine.
func (n *node) plugIn(ctx context.Context, control machine) error {
	inControl := []string{"--target", strconv.Itoa(control.Holder), "--net", "--", "ip"}
	for _, args := range [][]string{
		{"link", "add", n.Name, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(n.Holder)},
		{"link", "set", n.Name, "master", "lan", "up"},
		{"route", "add", n.PodNetwork, "via", nodeAddress(n.number)},
	} {
		if err := runCommand(exec.CommandContext(ctx, "nsenter", append(inControl, args...)...)); err != nil {
			return err
		}
	}
	return n.script(ctx, nodeNetworkScript, nodeAddress(n.number), n.PodNetwork, apiAddress, apiPort, apiService)
}

func (n *node) writeFiles(l layout, ca *certificates.Authority) error {
	dir := l.run(n.Name)
	kubeconfig, err := kubeconfigOf(ca, "system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	proxy, err := kubeconfigOf(ca, "system:kube-proxy")
	if err != nil {
		return err
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "kubelet.kubeconfig"), kubeconfig, 0o600),
		os.WriteFile(filepath.Join(dir, "kube-proxy.kubeconfig"), proxy, 0o600),
		os.WriteFile(filepath.Join(dir, "ca.crt"), ca.PEM, 0o644),
		os.WriteFile(filepath.Join(dir, "resolv.conf"), nil, 0o644),
		renderTo(filepath.Join(dir, "containerd.toml"), "containerd.toml.tmpl", n),
		renderTo(filepath.Join(dir, "kubelet.yaml"), "kubelet.yaml.tmpl", n),
		renderTo(filepath.Join(dir, "kube-proxy.yaml"), "kube-proxy.yaml.tmpl", n),
		renderTo(filepath.Join(dir, "cni/pods.conflist"), "cni.conflist.tmpl", n),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// makePool gives the node a disk of its own for the local volumes: an xfs that can share extents, in
// a sparse file. The loop device goes when the mount goes.
func (n *node) makePool(ctx context.Context, l layout, size int64) error {
	file, err := os.Create(l.pool(n.Name))
	if err != nil {
		return err
	}
	if err := file.Truncate(size); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := runCommand(exec.CommandContext(ctx, "mkfs.xfs", "-q", "-m", "reflink=1", file.Name())); err != nil {
		return err
	}
	return runCommand(n.command(ctx, "mount", "-o", "loop", inside("run", n.Name, "pool.img"), "/var/lib/cloudblock-csi/pool"))
}

func (n *node) startContainerd(ctx context.Context, l layout) error {
	containerd, err := n.start(l, "containerd", "--config", n.Dir+"/containerd.toml")
	if err != nil {
		return err
	}
	return containerd.ready(ctx, 30*time.Second, func(ctx context.Context) error {
		return runCommand(n.ctr(ctx, "version"))
	})
}

// ctr is containerd's own client on the node, in the namespace of the kubelet's images.
func (n *node) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return n.command(ctx, "ctr", append([]string{"--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io"}, args...)...)
}

// startKubelet starts the kubelet and waits until the API server calls the node Ready.
func (n *node) startKubelet(ctx context.Context, l layout) error {
	kubelet, err := n.start(l, inside("bin/kubelet"), "--config="+n.Dir+"/kubelet.yaml",
		"--kubeconfig="+n.Dir+"/kubelet.kubeconfig", "--hostname-override="+n.Name, "--node-ip="+nodeAddress(n.number),
		"--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki", "--v=2")
	if err != nil {
		return err
	}
	return kubelet.ready(ctx, 2*time.Minute, func(ctx context.Context) error {
		ready, err := output(kubectl(ctx, l, "get", "node", n.Name,
			"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].message}`))
		if err == nil && (len(ready) < 4 || ready[:4] != "True") {
			err = fmt.Errorf("ready: %s", ready)
		}
		return err
	})
}

// startProxy starts kube-proxy and waits until it has the services.
func (n *node) startProxy(ctx context.Context, l layout) error {
	proxy, err := n.start(l, inside("bin/kube-proxy"), "--config="+n.Dir+"/kube-proxy.yaml", "--v=2")
	if err != nil {
		return err
	}
	return proxy.ready(ctx, time.Minute, func(ctx context.Context) error {
		return healthy(ctx, n.machine, "http://"+n.ProxyHealth, "/healthz")
	})
}
