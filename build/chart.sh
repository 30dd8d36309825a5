#!/bin/sh
# chart.sh packages the Helm chart for the images that names.sh names.
#
#   chart.sh DIR   where the archive goes; what is there is deleted
set -eu
cd "$(dirname "$0")/.."

dir="${1:?chart.sh needs a folder}"
image="$(build/names.sh image controller)"
registry="${image%/controller:*}"
tag="${image##*:}"

# A chart needs a semantic version. Builds without one come before all that have one.
case "$tag" in
v[0-9]*.[0-9]*.[0-9]*) version="${tag#v}" ;;
*) version="0.0.0-g$tag" ;;
esac

rm -rf "$dir"
mkdir -p "$dir"
cp -r deploy/charts/cloudblock-csi "$dir"
sed -i "s|^  registry: ghcr.io/cloudblock-csi\$|  registry: $registry|" "$dir/cloudblock-csi/values.yaml"
grep -qx "  registry: $registry" "$dir/cloudblock-csi/values.yaml"
folder="$(cd "$dir" && pwd)"
(cd test/check/charts && ${GO:-go} tool helm package "$folder/cloudblock-csi" --destination "$folder" --version "$version" --app-version "$tag" >/dev/null)
rm -r "$dir/cloudblock-csi"
echo "$dir/cloudblock-csi-$version.tgz"
[ "$(id -u)" != 0 ] || chown -R --reference=Makefile "$dir"
