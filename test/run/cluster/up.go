package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/certificates"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/cgroups"
)

// options are what `up` can be told.
type options struct {
	cloud    string
	nodes    int
	poolSize int64 // bytes
}

// cluster is one that is being started or changed.
type cluster struct {
	layout
	options
	show      *steps
	groups    []cgroups.Hierarchy
	authority *certificates.Authority
	state     state
	control   machine
	nodes     []*node
}

// up starts a cluster, or brings the running one to the clone's state.
func up(ctx context.Context, l layout, o options) error {
	if err := require(ctx, l); err != nil {
		return err
	}
	if _, err := os.Stat(overlay(l, o.cloud)); err != nil && o.cloud != noDriver {
		return fmt.Errorf("there is no overlay for %q: %w", o.cloud, err)
	}
	groups, err := cgroups.Hierarchies()
	if err != nil {
		return err
	}
	held, err := lock(l)
	if err != nil {
		return err
	}
	defer held.Close()
	c := &cluster{layout: l, options: o, groups: groups, show: &steps{out: os.Stdout, begin: time.Now()}}
	if err := c.build(ctx); err != nil {
		return err
	}
	if c.state, err = readState(l); err != nil {
		return err
	}
	if c.state.running() {
		err = c.refresh(ctx)
	} else {
		err = c.start(ctx)
	}
	if err != nil {
		return err
	}
	return c.epilogue(ctx)
}

// needed is what a cluster needs beside Go, in the words of test/require.sh.
var needed = []string{
	"root", "loop", "etcd", "containerd", "ctr", "runc", "/usr/lib/cni/bridge", "busybox", "mkfs.xfs",
	"ip", "iptables", "mount", "unshare", "nsenter", "buildah", "debootstrap",
}

// require says what this machine lacks, all at once and before anything starts.
func require(ctx context.Context, l layout) error {
	cmd := exec.CommandContext(ctx, l.source("test/require.sh"), needed...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return errors.New("this machine lacks what is listed above")
	}
	return nil
}

// build makes every program and image.
func (c *cluster) build(ctx context.Context) error {
	builds, err := clusterBuilds(ctx, c.layout)
	if err != nil {
		return err
	}
	for _, b := range builds {
		if err := b.run(ctx, c.layout, c.show); err != nil {
			return err
		}
	}
	if c.cloud == noDriver {
		return nil
	}
	if emulated(c.cloud) {
		if err := emulatorBuild(c.layout).run(ctx, c.layout, c.show); err != nil {
			return err
		}
	}
	return c.show.do("built the driver's images (make images-local)", func() error {
		cmd := exec.CommandContext(ctx, c.source("build/images-local.sh"))
		cmd.Dir = c.project
		cmd.Env = append(os.Environ(), "REGISTRY=", "TAG="+currentTag) // the names in the overlays, which it applies as they are
		return runCommand(cmd)
	})
}

// start makes everything from nothing; a start that fails leaves nothing but the logs.
func (c *cluster) start(ctx context.Context) error {
	err := c.startAll(ctx)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx) // what the interrupted step makes of it says nothing
	}
	c.show.say("it did not come up; taking down what was started (logs stay in %s)", c.logs())
	return errors.Join(err, clean(context.WithoutCancel(ctx), c.layout))
}

func (c *cluster) startAll(ctx context.Context) error {
	// Also what a crash or a restart of the machine left.
	if err := clean(ctx, c.layout); err != nil {
		return err
	}
	if err := loops.Fresh(); err != nil {
		return err
	}
	if err := os.RemoveAll(c.logs()); err != nil {
		return err
	}
	if err := os.MkdirAll(c.run(), 0o755); err != nil {
		return err
	}
	c.state = state{Cloud: c.cloud, Nodes: c.options.nodes, Kubernetes: c.kubernetes}
	var err error
	if c.authority, err = certificates.New(); err != nil {
		return err
	}
	for _, step := range c.startSteps() {
		if err := c.show.do(step.what, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	c.state.Complete = true
	return c.state.save(c.layout)
}

// startStep is one thing that a start does, and how it is called when it is done.
type startStep struct {
	what string
	do   func(context.Context) error
}

// startSteps are in order.
func (c *cluster) startSteps() []startStep {
	all := []startStep{
		{"made the namespaces and the network", c.makeMachines},
		{"started etcd, the API server, the controllers and the scheduler", func(ctx context.Context) error {
			return startControl(ctx, c.layout, c.control)
		}},
		{"started containerd and mounted the pools", func(ctx context.Context) error {
			return c.onEach(func(n *node) error {
				return errors.Join(n.makePool(ctx, c.layout, c.poolSize), n.startContainerd(ctx, c.layout))
			})
		}},
		{"imported the images", c.importImages},
		{"started the kubelets, nodes Ready, and kube-proxy on each", func(ctx context.Context) error {
			return c.onEach(func(n *node) error {
				if err := n.startKubelet(ctx, c.layout); err != nil {
					return err
				}
				return n.startProxy(ctx, c.layout)
			})
		}},
		{"applied the manifests, all pods ready", func(ctx context.Context) error {
			_, err := c.deploy(ctx)
			return err
		}},
	}
	if emulated(c.cloud) {
		// The manifests need its certificate, and its machines are the nodes.
		all = slices.Insert(all, 1, startStep{"started the emulated cloud", c.startEmulator})
	}
	return all
}

// refresh gives a running cluster the present images and manifests.
func (c *cluster) refresh(ctx context.Context) error {
	if c.state.Cloud != c.cloud || c.state.Nodes != c.options.nodes || c.state.Kubernetes != c.kubernetes {
		return fmt.Errorf("a cluster of %d nodes for the cloud %q with KUBERNETES=%q is running; take it down first", c.state.Nodes, c.state.Cloud, c.state.Kubernetes)
	}
	c.show.say("the cluster is running: giving it the images and manifests of this clone")
	if err := c.findNodes(); err != nil {
		return err
	}
	if err := c.show.do("imported the images", func() error { return c.importImages(ctx) }); err != nil {
		return err
	}
	return c.show.do("applied the manifests, all pods made again and ready", func() error {
		folders, err := c.deploy(ctx)
		if err != nil || c.cloud == noDriver {
			return err
		}
		if err := restartDriver(ctx, c.layout, folders[len(folders)-1]); err != nil {
			return err
		}
		return waitForWorkloads(ctx, c.layout, c.nodes)
	})
}

// findNodes finds the nodes of a running cluster.
func (c *cluster) findNodes() error {
	for number := 1; number <= c.state.Nodes; number++ {
		m, found := c.state.machine(nodeName(number))
		if !found {
			return fmt.Errorf("%s is not in %s; take the cluster down first", nodeName(number), c.layout.state())
		}
		c.nodes = append(c.nodes, &node{machine: m, number: number})
	}
	return nil
}

// makeMachines makes the namespaces of the control machine and the nodes, and the network.
func (c *cluster) makeMachines(ctx context.Context) error {
	var err error
	if c.control, err = c.newMachine(ctx, controlName); err != nil {
		return err
	}
	if err := c.control.script(ctx, controlNetworkScript, apiAddress); err != nil {
		return err
	}
	if err := joinHost(ctx, c.control); err != nil {
		return err
	}
	if err := c.control.script(ctx, hostLinkScript); err != nil {
		return err
	}
	if err := writeControlFiles(c.layout, c.authority); err != nil {
		return err
	}
	for number := range c.options.nodes {
		n, err := newNode(ctx, c, number+1)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

// newMachine makes a machine and writes it down, also a half-made one, so that it can be taken down.
func (c *cluster) newMachine(ctx context.Context, name string) (machine, error) {
	m, err := newMachine(ctx, c.layout, c.groups, name)
	if m.Holder != 0 {
		c.state.Machines = append(c.state.Machines, m)
		err = errors.Join(err, c.state.save(c.layout))
	}
	return m, err
}

// deploy applies all manifests and returns their folders, the driver's as the last.
func (c *cluster) deploy(ctx context.Context) ([]string, error) {
	folders, err := manifests(ctx, c.layout, c.cloud)
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		if err := apply(ctx, c.layout, folder); err != nil {
			return nil, err
		}
	}
	return folders, waitForWorkloads(ctx, c.layout, c.nodes)
}

// onEach does something on all nodes at once.
func (c *cluster) onEach(do func(*node) error) error {
	problems := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i, n := range c.nodes {
		all.Go(func() { problems[i] = do(n) })
	}
	all.Wait()
	return errors.Join(problems...)
}

// epilogue says how to use what is there.
func (c *cluster) epilogue(ctx context.Context) error {
	pods, err := output(kubectl(ctx, c.layout, "get", "nodes,pods", "--all-namespaces", "-o", "wide"))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.show.out, "%8.1f s  in all\n\n%s\nUse it:\n  export KUBECONFIG=%s\n  export PATH=%s:$PATH\n  kubectl get nodes\nLogs: %s\n",
		time.Since(c.show.begin).Seconds(), pods, c.kubeconfig(), c.cluster("bin"), c.logs())
	if emulated(c.cloud) {
		fmt.Fprintf(c.show.out, "The account (docs/contributing/emulators.md): http://%s/_emulator/\n", hostPort(emulatorPort))
	}
	return nil
}
