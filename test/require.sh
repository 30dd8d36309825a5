#!/bin/sh
# require.sh NAME... says which of the named things this machine lacks, and how to get them, all at
# once and before any work starts. Exit status 1 if anything is missing.
#
# A name is a program, or one of: root (the effective user), loop (loop devices), fuse (/dev/fuse). Go is
# needed by everything; $GO is what to call instead of "go".
set -u
PATH="$PATH:/usr/sbin:/sbin"

missing=""
packages=""

lack() { missing="$missing
  $1"; }

package_of() {
	case "$1" in
	gcc) echo "gcc libc6-dev" ;;
	mkfs.ext4) echo e2fsprogs ;;
	mkfs.xfs) echo xfsprogs ;;
	mkfs.btrfs) echo btrfs-progs ;;
	cryptsetup) echo cryptsetup-bin ;;
	mount | blkid | losetup) echo "mount util-linux" ;;
	unshare | nsenter) echo util-linux ;;
	ip) echo iproute2 ;;
	systemd-analyze) echo systemd ;;
	etcd) echo etcd-server ;;
	ctr) echo containerd ;;
	prometheus | promtool) echo "--no-install-recommends prometheus" ;;
	qemu-system-x86_64) echo qemu-system-x86 ;;
	busybox) echo busybox-static ;;
	/usr/lib/cni/*) echo containernetworking-plugins ;;
	*) echo "$1" ;;
	esac
}

go="${GO:-go}"
command -v "${go%% *}" >/dev/null 2>&1 ||
	lack "$go: Go 1.26 or newer is not on the PATH (sudo has a PATH of its own: sudo env PATH=\"\$PATH\" make ...)"

for name; do
	case "$name" in
	root)
		[ "$(id -u)" = 0 ] || lack "root: this target makes loop devices and mounts; run it with sudo"
		;;
	loop)
		[ -e /dev/loop-control ] || lack "/dev/loop-control: the kernel has no loop devices here (try: modprobe loop)"
		;;
	fuse)
		[ -e /dev/fuse ] || lack "/dev/fuse: the kernel has no FUSE here (try: modprobe fuse)"
		;;
	*)
		if ! command -v "$name" >/dev/null 2>&1; then
			lack "$name"
			for package in $(package_of "$name"); do
				case "$packages " in
				*" $package "*) ;;
				*) packages="$packages $package" ;;
				esac
			done
		fi
		;;
	esac
done

[ -z "$missing" ] && exit 0
echo "This target cannot start; missing here:$missing" >&2
[ -n "$packages" ] && echo "On Debian or Ubuntu: apt-get update && apt-get install -y$packages" >&2
exit 1
