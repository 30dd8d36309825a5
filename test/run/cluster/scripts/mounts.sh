# Runs inside a machine's new namespaces: mounts.sh CLUSTER-FOLDER MACHINE
# From here on nothing that is mounted reaches the host, and /var, /run and /tmp are the machine's own.
cluster=$1
name=$2
state=$cluster/run/$name

hostname "$name"
# The kubelet shares mounts with pods and back: all mounts must propagate, inside these namespaces.
mount --make-rshared /
mount -t proc proc /proc
mount -t sysfs sysfs /sys

mkdir -p "$state/var/lib/kubelet" "$state/var/lib/containerd" "$state/var/lib/cloudblock-csi/pool" \
	"$state/var/log/pods" "$state/var/log/containers" "$state/var/tmp" "$state/var/cache"
ln -sfn /run "$state/var/run"
ln -sfn /run/lock "$state/var/lock"
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/cluster /run/lock
mount --bind "$cluster" /run/cluster
mount --bind "/run/cluster/run/$name/var" /var
mount -t tmpfs -o mode=1777 tmp /tmp
# Whatever a program makes of its defaults, it makes nothing on the host.
mount -o remount,bind,ro /

# The kubelet sets these for the whole kernel. It finds what it wants in files of the machine's own.
mkdir -p /run/sysctl
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	key=${setting%=*}
	file=/run/sysctl/$(echo "$key" | tr / .)
	echo "${setting#*=}" >"$file"
	mount --bind "$file" "/proc/sys/$key"
done
