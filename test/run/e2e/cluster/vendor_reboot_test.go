//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// boot starts a machine that was halted: with another boot id, and with a containerd and a kubelet that remember only what is in
// their files.
const boot = `set -e
mkdir -p /run/sysctl
cat /proc/sys/kernel/random/uuid >/run/sysctl/boot_id
grep -q " /proc/sys/kernel/random/boot_id " /proc/self/mounts || mount --bind /run/sysctl/boot_id /proc/sys/kernel/random/boot_id
for p in /proc/[0-9]*; do
	program=$(readlink "$p/exe") || continue
	case "$program" in
	*/kubelet | */containerd)
		tr '\0' ' ' <"$p/cmdline" >"/run/${program##*/}.command"
		kill -KILL "${p#/proc/}"
		;;
	esac
done
sleep 1
start() {
	setsid env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
		$(cat "/run/$1.command") >>"/run/cluster/logs/$(hostname)/$1.log" 2>&1 </dev/null &
}
start containerd
for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
	ctr --address /run/containerd/containerd.sock version >/dev/null 2>&1 && break
	sleep 1
done
start kubelet`

// podOverReboot: the machine of a pod boots without notice, and the same pod has its data again.
func (v *vendored) podOverReboot(ctx context.Context) error {
	p, err := v.usual(ctx, nil)
	if err == nil {
		err = v.write(ctx, p)
	}
	if err == nil {
		err = v.reboots(ctx, p, nil)
	}
	if err != nil {
		return err
	}
	after, err := v.UntilReady(ctx, "e2e-pod", patience)
	if err == nil && after.Metadata.UID != p.Metadata.UID {
		err = errors.New("another pod has taken the place of the one before the boot")
	}
	if err == nil {
		err = v.wantData(ctx, after, v.sums["e2e-pod"])
	}
	return v.finish(ctx, after, err)
}

// statefulSetOverReboot: while the machine is away its StatefulSet is kept off it. After the boot the pod runs on another machine
// and has its data.
func (v *vendored) statefulSetOverReboot(ctx context.Context) error {
	v.wantTwoNodes()
	if err := v.class(ctx, "Delete", nil); err != nil {
		return err
	}
	p, err := v.created(ctx, "sts-0", v.statefulSetOf(1, ""))
	if err == nil {
		err = v.write(ctx, p)
	}
	if err != nil {
		return err
	}
	other := v.env.otherThan(p.Spec.NodeName)
	err = v.reboots(ctx, p, func() error { return v.sends(ctx, other) })
	if err != nil {
		return err
	}
	p, err = v.untilNext(ctx, p, func(next kube.Pod) bool { return next.Spec.NodeName == other })
	if err == nil {
		err = v.wantData(ctx, p, v.sums["sts-0"])
	}
	return v.finishSet(ctx, p, err)
}

// reboots stops the machine of a pod, does something when the cluster has noticed, and boots the machine and its Linode again.
func (v *vendored) reboots(ctx context.Context, p kube.Pod, meanwhile func() error) error {
	node := p.Spec.NodeName
	linode, err := v.Run(ctx, "get", "csinode", node, "--output", `jsonpath={.spec.drivers[?(@.name=="`+linodeDriver+`")].nodeID}`)
	if err != nil {
		return err
	}
	before, err := v.bootID(ctx, node)
	if err != nil {
		return err
	}
	v.t.Cleanup(func() { v.back(v.t, node) })
	if err := inMachine(ctx, node, halt); err != nil {
		return err
	}
	if err := v.untilNode(ctx, node, false); err != nil {
		return err
	}
	if _, err := v.UntilEvent(ctx, p.Metadata.Name, patience, func(e kube.Event) bool { return e.Reason == "NodeNotReady" }); err != nil {
		return err
	}
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return err
		}
	}
	if _, err := v.account.send(ctx, http.MethodPost, "linodes/"+linode+"/reboot", nil); err != nil {
		return err
	}
	if err := inMachine(ctx, node, boot); err != nil {
		return err
	}
	if err := v.untilNode(ctx, node, true); err != nil {
		return err
	}
	after, err := v.bootID(ctx, node)
	if err == nil && after == before {
		err = fmt.Errorf("%s has the boot id %s as before", node, after)
	}
	return err
}

// bootID is the boot id that a node's kubelet has reported.
func (v *vendored) bootID(ctx context.Context, node string) (string, error) {
	id, err := v.Run(ctx, "get", "node", node, "--output", "jsonpath={.status.nodeInfo.bootID}")
	return strings.TrimSpace(id), err
}
