#!/usr/bin/env bash
# release-images.sh builds the images for this machine's architecture, tests them, and writes to bin/dist/ARCHITECTURE of each what
# is published, and of nothing else:
#
#   IMAGE.tar        the archive that was tested
#   IMAGE.digest     the digest that a registry will have it under
#   IMAGE.cdx.json   what it is made of
#
#   BUILDER         buildah (default), as images-local.sh builds them, or buildx
#   REGISTRY, TAG   see names.sh
set -euo pipefail
cd "$(dirname "$0")/.."

go="${GO:-go}"
tools="$PWD/test/kit/tools/go.mod"
dist="$PWD/bin/dist/$("$go" env GOARCH)"
rm -rf "$dist"
mkdir -p "$dist"

case "${BUILDER:=buildah}" in
buildah)
	build/images-local.sh
	cp "${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cloudblock-csi}"/images/*.tar "$dist"
	;;
buildx) build/images.sh --archives "$dist" ;;
*) echo "BUILDER=$BUILDER: known are buildah and buildx" >&2 && exit 2 ;;
esac

echo "testing the archives in $dist"
"$go" test -count=1 -tags images ./test/check/images -args -images "$dist"
for image in controller node lvm; do
	(cd test/kit/tools && "$go" run ./sbom "$dist/$image.tar") >"$dist/$image.cdx.json"
	"$go" tool -modfile="$tools" crane digest --tarball "$dist/$image.tar" >"$dist/$image.digest"
	echo "$image $(cat "$dist/$image.digest")"
done
[ "$(id -u)" != 0 ] || chown -R --reference=Makefile bin
