#!/usr/bin/env bash
# image.sh [SUITE] makes what the virtual machine of the suite starts from, as root: the kernel for clouds of a release of
# Debian (default: bookworm) and a root disk with the programs that the node program runs. Nothing of this project is in
# it: the guest's own program and the node program come with each start. Prints the folder with vmlinuz and root.img.
#
#   bullseye has Linux 5.10, which is too old for the node program.
#   trixie has the policy of SELinux, whose older versions in Debian do not know containers.
#
#   CACHE    where it is kept (default ~/.cache/cloudblock-csi), under a name that depends on this script
#   MIRROR   another Debian mirror
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"

suite="${1:-bookworm}"
packages=udev,kmod,e2fsprogs,xfsprogs,btrfs-progs,dosfstools,cryptsetup-bin,lvm2,dmsetup,mdadm,mount,util-linux,fdisk,procps,iproute2
[ "$suite" != trixie ] || packages+=,policycoreutils,selinux-utils,selinux-policy-default

cache="${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cloudblock-csi}/vm"
dir="$cache/$suite-$(sha256sum <"${BASH_SOURCE[0]}" | cut -c1-16)"
mkdir -p "$cache"
# One at a time.
exec 9>"$cache/lock"
flock -n 9 || { echo "waiting for another run of this script" >&2 && flock 9; }
if [ -e "$dir/root.img" ]; then
	echo "$dir"
	exit
fi

log="$cache/last.log"
made=""
trap '[ -n "$made" ] || { tail -40 "$log"; echo "image.sh failed, see $log"; } >&2' EXIT
work="$cache/work"
root="$work/root"
rm -rf "$work"
mkdir -p "$work/out"
echo "making the image of the virtual machine, once (about 150 MB to download)" >&2
debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${MIRROR:+"$MIRROR"} >"$log" 2>&1

# The kernel is unpacked and not installed: its installation would make an initramfs.
in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive "$@"; }
{
	in_root apt-get update
	kernel="$(in_root apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')"
	in_root sh -c "cd /tmp && apt-get download $kernel"
	dpkg -x "$root"/tmp/linux-image-*.deb "$work/kernel" # not into the root: its /lib is a link there
	mv "$(find "$work/kernel" -maxdepth 3 -type d -name modules)" "$root/lib/" # below /usr/lib in newer releases
	in_root depmod "${kernel#linux-image-}"
} >>"$log" 2>&1
cp "$work/kernel/boot/vmlinuz-${kernel#linux-image-}" "$work/out/vmlinuz"
rm -rf "$root"/tmp/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
mkdir -p "$root/var/lib/kubelet" "$root/csi"
mke2fs -q -F -t ext4 -L root -E root_owner=0:0 -d "$root" "$work/out/root.img" 1500M >>"$log" 2>&1

rm -rf "$dir" "$root" "$work/kernel"
mv "$work/out" "$dir"
# Images of earlier versions of this script.
find "$cache" -mindepth 1 -maxdepth 1 -type d -name "$suite-*" ! -path "$dir" -exec rm -rf {} +
made=yes
echo "$dir"
