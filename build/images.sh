#!/usr/bin/env bash
# images.sh builds the images with docker buildx; names.sh has their names.
#
#   images.sh                  for all PLATFORMS, into the builder's cache, because docker itself holds images of one architecture only
#   images.sh --push           the same, into the registry, with a list of contents and a provenance that BuildKit writes, unsigned
#   images.sh --archives DIR   for this machine's architecture, into DIR/{controller,node,lvm}.tar
set -euo pipefail
cd "$(dirname "$0")/.."

version="$(build/names.sh version)"
commit="${COMMIT:-$(git rev-parse --short=12 HEAD)}"
options=(--platform "${PLATFORMS:-linux/amd64,linux/arm64}")
archives=""
case "${1:-}" in
--push)
	build/names.sh check-push
	options+=(--sbom=true --provenance=mode=max --push)
	;;
--archives)
	archives="${2:?--archives needs a folder}"
	options=(--sbom=false --provenance=false)
	;;
"") ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
for image in controller node lvm; do
	[ -z "$archives" ] || output=(--output "type=docker,dest=$archives/$image.tar,compression=uncompressed,force-compression=true")
	docker buildx build --file "build/$image.Dockerfile" --tag "$(build/names.sh image "$image")" \
		--build-arg VERSION="$version" --build-arg COMMIT="$commit" "${options[@]}" ${output[@]+"${output[@]}"} .
done
