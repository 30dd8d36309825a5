#!/bin/sh
# packages.sh [SUITE...] installs the programs other than Go that the suites need, on Debian or Ubuntu, as root; those of `make cluster`
# and `make e2e-monitoring` only for the suites cluster and monitoring. It asks the package source only for what is missing, and repeats
# what may pass: a source that does not answer, a lock that another process holds.
set -eu
export DEBIAN_FRONTEND=noninteractive

missing() {
	for package; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf ' %s' "$package"
	done
}

# repeat COMMAND... tries five times. APT itself does not repeat a request that was answered with 503.
repeat() {
	tries=1
	until "$@"; do
		[ "$tries" -lt 5 ] || return 1
		echo "attempt $tries of 5 failed, next one in $((tries * 5)) s: $*" >&2
		sleep $((tries * 5))
		tries=$((tries + 1))
	done
}

# Without Error-Mode, an update that reached no source succeeds.
apt() { apt-get -q -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=300 \
	-o APT::Update::Error-Mode=any "$@"; }

# What another run left half installed is completed first.
install() {
	dpkg --configure -a && apt update && apt install -y "$@"
}

packages=$(missing gcc libc6-dev make git e2fsprogs xfsprogs btrfs-progs cryptsetup-bin mount util-linux \
	buildah debootstrap debian-archive-keyring systemd shellcheck)
# What these recommend is for desktops, and for what shows metrics.
lean=$(missing qemu-system-x86)
for suite; do
	case "$suite" in
	cluster) packages="$packages$(missing etcd-server containerd runc containernetworking-plugins busybox-static iproute2 iptables)" ;;
	monitoring) lean="$lean$(missing prometheus)" ;;
	*) echo "packages.sh: known suites are cluster and monitoring, and not $suite" >&2 && exit 2 ;;
	esac
done
[ -z "$packages" ] || repeat install $packages
[ -z "$lean" ] || repeat install --no-install-recommends $lean
echo "installed:${packages:- nothing}$lean"
