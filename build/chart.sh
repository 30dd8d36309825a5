#!/bin/sh
# chart.sh packages the Helm chart for the images that names.sh names.
#
#   chart.sh DIR   where the archive goes; what is there is deleted
#   DIGESTS        a file with lines of REGISTRY/IMAGE@DIGEST, which the chart then names
set -eu
cd "$(dirname "$0")/.."

dir="${1:?chart.sh needs a folder}"
image="$(build/names.sh image controller)"
registry="${image%/controller:*}"
tag="${image##*:}"

# A chart needs a semantic version, which not every tag is. Builds without one come before all that have one.
number='(0|[1-9][0-9]*)'
version="$(printf '%s\n' "$tag" | sed -nE "s/^v($number\.$number\.$number(-[0-9A-Za-z.-]+)?)\$/\1/p")"
[ -n "$version" ] || version="0.0.0-g$(printf %s "$tag" | tr -c 'A-Za-z0-9-' -)"

rm -rf "$dir"
mkdir -p "$dir"
cp -r deploy/charts/cloudblock-csi "$dir"
sed -i "s|^  registry: ghcr.io/cloudblock-csi\$|  registry: $registry|" "$dir/cloudblock-csi/values.yaml"
grep -qx "  registry: $registry" "$dir/cloudblock-csi/values.yaml"
if [ -n "${DIGESTS:-}" ]; then
	# An image's digest is the first one behind its repository.
	awk -F @ '
		NR == FNR { sub(/.*\//, "", $1); of[$1] = $2; next }
		/^    repository: / { split($0, word, ": "); image = word[2] }
		/^    digest: ""$/ && image in of { $0 = "    digest: " of[image]; delete of[image] }
		{ print }
		END { for (image in of) { print image " has no digest in values.yaml" >"/dev/stderr"; exit 1 } }
	' "$DIGESTS" "$dir/cloudblock-csi/values.yaml" >"$dir/values.yaml"
	mv "$dir/values.yaml" "$dir/cloudblock-csi/values.yaml"
fi
folder="$(cd "$dir" && pwd)"
(cd test/check/charts && ${GO:-go} tool helm package "$folder/cloudblock-csi" --destination "$folder" --version "$version" --app-version "$tag" >/dev/null)
rm -r "$dir/cloudblock-csi"
echo "$dir/cloudblock-csi-$version.tgz"
[ "$(id -u)" != 0 ] || chown -R --reference=Makefile "$dir"
