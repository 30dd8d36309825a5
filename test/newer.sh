#!/bin/sh
# newer.sh fails if the registry has a newer release of an image that the manifests name, or lacks the one that they name.
set -eu
cd "$(dirname "$0")/.."
crane="${CRANE:-${GO:-go} tool -modfile=test/kit/tools/go.mod crane}"
pinned=deploy/components/images/kustomization.yaml

bad=0
images="$(sed -n '/^- name: registry/{s/^- name: //;N;s/\n *newTag: / /;p}' "$pinned")"
[ -n "$images" ] || { echo "$pinned names no image of a registry" >&2; exit 1; }
while read -r image tag; do
	tags="$($crane ls "$image")"
	releases="$(echo "$tags" | grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' | sort -V)"
	newest="$(echo "$releases" | tail -n 1)"
	if ! echo "$releases" | grep -qxF "$tag"; then
		echo "$image:$tag is not in the registry; the newest is $newest"
		bad=1
	elif [ "$tag" != "$newest" ]; then
		echo "$image:$tag is named in $pinned, and $newest is out"
		bad=1
	else
		echo "$image:$tag is the newest"
	fi
done <<IMAGES
$images
IMAGES
exit "$bad"
