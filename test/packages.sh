#!/bin/sh
# packages.sh installs the programs other than Go that the suites need, on Debian or Ubuntu, as root.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq gcc libc6-dev make git e2fsprogs xfsprogs btrfs-progs cryptsetup-bin mount util-linux \
	buildah debootstrap debian-archive-keyring systemd >/dev/null
# What it recommends is for desktops.
apt-get install -y -qq --no-install-recommends qemu-system-x86 >/dev/null
