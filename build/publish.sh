#!/usr/bin/env bash
# publish.sh puts the images of bin/dist, which release-images.sh has tested, and the chart into the registry. It builds no image.
# Everything is pushed by digest and signed, then the tags are set, and the end verifies all. bin/dist/published lists names and digests.
#
#   REGISTRY, TAG   see names.sh
#   KEY, IDENTITY   see cosign.sh
set -euo pipefail
cd "$(dirname "$0")/.."

build/names.sh check-push
go="${GO:-go}"
crane() { "$go" tool -modfile="$PWD/test/kit/tools/go.mod" crane "$@"; }
name="$(build/names.sh image controller)"
registry="${name%/controller:*}" tag="${name##*:}"
published=bin/dist/published
rm -f "$published" "$published.new"
build/provenance.sh >bin/dist/provenance.json

# tested fails unless an archive is the one that release-images.sh has tested.
tested() {
	local digest
	digest="$(crane digest --tarball "$1.tar")"
	[ "$digest" = "$(cat "$1.digest")" ] || { echo "$1.tar is $digest and not $(cat "$1.digest"), which was tested" >&2 && return 1; }
}

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# cosign shows what it printed only if it fails.
cosign() { build/cosign.sh "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }; }

sign() {
	cosign sign "$1"
	cosign attest slsaprovenance1 bin/dist/provenance.json "$1"
}

for image in controller node lvm; do
	for archive in bin/dist/*/"$image.tar"; do tested "${archive%.tar}"; done
done
for image in controller node lvm; do
	echo "pushing $registry/$image"
	archives=("$PWD"/bin/dist/*/"$image.tar")
	digest="$(cd test/kit/tools && "$go" run ./push "$registry/$image" "${archives[@]}")"
	sign "$registry/$image@$digest"
	for archive in "${archives[@]}"; do
		each="$registry/$image@$(cat "${archive%.tar}.digest")"
		cosign attest slsaprovenance1 bin/dist/provenance.json "$each"
		cosign attest cyclonedx "${archive%.tar}.cdx.json" "$each"
	done
	echo "$registry/$image@$digest" >>"$published.new"
	echo "signed $registry/$image@$digest"
done

DIGESTS="$published.new" GO="$go" build/chart.sh bin/chart
plain=""
case "$registry" in 127.0.0.1:*) plain=--plain-http ;; esac
chart=(bin/chart/*.tgz)
digest="$(cd test/check/charts && "$go" tool helm push $plain "../../../${chart[0]}" "oci://$registry/charts" 2>&1 | awk '{ print > "/dev/stderr" } $1 == "Digest:" { print $2 }')"
sign "$registry/charts/cloudblock-csi@$digest"
echo "$registry/charts/cloudblock-csi@$digest" >>"$published.new"

while IFS=@ read -r name digest; do
	case "$name" in "$registry"/charts/*) ;; *) crane tag "$name@$digest" "$tag" ;; esac
done <"$published.new"
mv "$published.new" "$published"
build/verify.sh
