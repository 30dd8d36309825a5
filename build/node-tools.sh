#!/bin/sh
# node-tools.sh install [PACKAGE...]     installs the filesystem tools of the node image on Debian, and every update
# node-tools.sh collect DIR [TOOL...]    copies them into DIR as the root of an image: the tools, the libraries
#                                        that they link or load, and their settings
# More packages and tools are those of an image that has more than the node's.
set -eu

# What cmd/node/checks.go names; a test compares the two.
tools="mount umount blkid
mkfs.ext4 e2fsck
mkfs.xfs xfs_growfs xfs_repair
cryptsetup dmsetup"

packages="mount util-linux e2fsprogs xfsprogs cryptsetup-bin dmsetup"

install() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get update
	apt-get upgrade -y
	# lvm2 backs up its volume groups when it is installed. Without this it would read every disk of the machine that
	# builds the image, and it does not end when one of them goes.
	LVM_SYSTEM_DIR="$(mktemp -d)"
	export LVM_SYSTEM_DIR
	echo 'devices { global_filter = [ "r|.*|" ] }' >"$LVM_SYSTEM_DIR/lvm.conf"
	# shellcheck disable=SC2086 # one word per package
	apt-get install -y --no-install-recommends $packages "$@"
}

# origin copies the terms of the package that a file belongs to, as the distribution asks, and the
# package's entry of dpkg's status, by which scanners know it in an image without dpkg.
origin() {
	owner="$(dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "${1#/usr}")"
	terms="/usr/share/doc/${owner%%:*}/copyright"
	mkdir -p "$root$(dirname "$terms")"
	cp -L "$terms" "$root$terms"
	mkdir -p "$root/var/lib/dpkg/status.d"
	dpkg-query -s "${owner%%: *}" >"$root/var/lib/dpkg/status.d/${owner%%:*}"
}

# put copies a file to the same place below the new root, through any link on the way.
put() {
	mkdir -p "$root$(dirname "$1")"
	cp -L --preserve=mode "$1" "$root$1"
	chmod u-s,g-s "$root$1" # mount and umount: who runs them here is root already
	origin "$1"
}

# below_usr is the place of a file of /bin, /sbin or /lib, which are links on Debian.
below_usr() {
	case "$1" in
	/usr/*) echo "$1" ;;
	*) echo "/usr$1" ;;
	esac
}

collect() {
	root="${1:?collect needs a folder}"
	shift
	mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/etc" "$root/tmp" "$root/run"
	chmod 1777 "$root/tmp"
	# As on Debian: everything is below /usr. The loader of some architectures is in /lib64.
	for dir in bin sbin lib; do ln -s "usr/$dir" "$root/$dir"; done
	[ ! -d /lib64 ] || { mkdir -p "$root/usr/lib64" && ln -s usr/lib64 "$root/lib64"; }

	libraries=""
	for tool in $tools "$@"; do
		file="$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v "$tool")"
		put "$(below_usr "$file")"
		libraries="$libraries $(ldd "$file" | sed -nE 's/(.* => |[[:space:]]+)(\/[^ ]+) \(0x.*/\2/p')"
	done
	for library in $libraries; do put "$(below_usr "$library")"; done

	put /etc/mke2fs.conf
	put /usr/lib/os-release
	ln -s ../usr/lib/os-release "$root/etc/os-release"
	ln -s /proc/self/mounts "$root/etc/mtab"
}

case "${1:-}" in
install) shift && install "$@" ;;
collect) shift && collect "$@" ;;
*) sed -n '2,5s/^# //p' "$0" >&2 && exit 2 ;;
esac
