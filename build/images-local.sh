#!/usr/bin/env bash
# images-local.sh builds the images on this machine without a registry, from the Dockerfiles beside it:
# buildah runs them, debootstrap makes the Debian that stands for all of their bases, and the machine's
# own Go is lent to the build stage. Writes IMAGES/{controller,node,lvm}.tar, which `ctr images import` and
# `docker load` read, under the names of names.sh.
#
#   REGISTRY, TAG   see names.sh
#   CACHE    where everything is kept (default ~/.cache/cloudblock-csi); IMAGES is CACHE/images
#   MIRROR   another Debian mirror
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

suite=trixie
cache="${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cloudblock-csi}"
images="$cache/images"
base="localhost/cloudblock/debian:$suite"
VERSION="$(build/names.sh version)" # once: the tree may change while this runs
export VERSION
commit="${COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}"
go="${GO:-go}"
mkdir -p "$images" "$cache/containers"
# One at a time: the storage and the archives are everybody's.
exec 9>"$cache/containers/lock"
flock -n 9 || { echo "waiting for another run of this script" && flock 9; }

say() { printf '%5ss  %s\n' "$SECONDS" "$*"; }

buildah() {
	command buildah --root "$cache/containers/storage" --runroot "$cache/containers/run" \
		--storage-driver overlay "$@"
}

# run_quietly shows what a command printed only if it fails.
run_quietly() {
	local log="$cache/containers/last.log"
	"$@" >"$log" 2>&1 && return
	tail -40 "$log" >&2
	echo "failed: $*" >&2
	return 1
}

make_base() {
	buildah inspect --type image "$base" >/dev/null 2>&1 && return
	local root="$cache/containers/debian-$suite"
	say "making a Debian $suite with debootstrap, once (about 100 MB to download)"
	rm -rf "$root"
	run_quietly debootstrap --variant=minbase \
		--include=ca-certificates,mount,util-linux,e2fsprogs,xfsprogs \
		"$suite" "$root" ${MIRROR:+"$MIRROR"}
	# What Debian's own image has, from the mirror that debootstrap has chosen: node-tools.sh upgrades from these.
	local mirror
	mirror="$(awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list")"
	cat >"$root/etc/apt/sources.list" <<-LIST
		deb $mirror $suite main
		deb $mirror $suite-updates main
		deb $mirror-security $suite-security main
	LIST
	local container
	container="$(buildah from scratch)"
	run_quietly buildah add "$container" "$root" /
	buildah config --env PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
	run_quietly buildah commit --rm "$container" "$base"
	rm -rf "$root"
}

# key_of is equal as long as nothing that goes into the image has changed.
key_of() {
	{
		echo "$VERSION $commit $(build/names.sh image "$1") $("$go" version)"
		find LICENSE go.mod go.sum cmd internal build -type f -print0 | sort -z | xargs -0 sha256sum
	} | sha256sum
}

build() {
	local name key
	name="$(build/names.sh image "$1")"
	key="$(key_of "$1")"
	if [ -e "$images/$1.tar" ] && [ "$(cat "$images/$1.key" 2>/dev/null)" = "$key" ]; then
		say "$1: nothing has changed"
		return
	fi
	changed=yes
	make_base
	say "$1: building $name"
	local gocache gomodcache
	gocache="$("$go" env GOCACHE)" gomodcache="$("$go" env GOMODCACHE)"
	mkdir -p "$gocache" "$gomodcache"
	# FROM of any base takes this one instead.
	local bases=() from
	while IFS= read -r from; do bases+=(--build-context "$from=container-image://$base"); done < \
		<(sed -nE 's/^FROM (.* )?(docker\.io[^ ]*) .*/\2/p' "build/$1.Dockerfile")
	run_quietly buildah bud --isolation chroot --pull-never --layers=false \
		--file "build/$1.Dockerfile" --ignorefile "build/$1.Dockerfile.dockerignore" \
		"${bases[@]}" \
		--build-arg VERSION="$VERSION" --build-arg COMMIT="$commit" \
		--build-arg TARGETARCH="$("$go" env GOARCH)" \
		--build-arg GOMODCACHE=/lent/modules --build-arg GOCACHE=/lent/build \
		--volume "$("$go" env GOROOT):/usr/local/go:ro" \
		--volume "$gomodcache:/lent/modules" --volume "$gocache:/lent/build" \
		--tag "$name" .
	rm -f "$images/$1.tar.new" "$images/$1.key"
	run_quietly buildah push "$name" "docker-archive:$images/$1.tar.new:$name"
	mv "$images/$1.tar.new" "$images/$1.tar"
	echo "$key" >"$images/$1.key"
	run_quietly buildah rmi --prune || true
}

changed=""
for image in controller node lvm; do build "$image"; done
if [ -n "$changed" ]; then
	say "looking into the images"
	# The key is taken back, so that an image which fails is not taken for good the next time.
	"$go" test -count=1 -tags images ./test/check/images -args -images "$images" || { rm -f "$images"/*.key && exit 1; }
fi
for image in controller node lvm; do
	say "$(build/names.sh image "$image"), $(du -m "$images/$image.tar" | cut -f1) MiB: $images/$image.tar"
done
