#!/usr/bin/env bash
# pin.sh [FILE] writes the digest of every image with a version into a kustomization, by asking its registry. The
# driver's own images in the tree have none. FILE is that of deploy/components/images unless given.
set -euo pipefail
cd "$(dirname "$0")/.."

file="${1:-deploy/components/images/kustomization.yaml}"
tools="$PWD/test/tools/go.mod"
go="${GO:-go}"
out="$(mktemp "$file.XXXXXX")"
trap 'rm -f "$out"' EXIT

# Each image is its name and its tag on two lines, and the digest of an earlier run on a third.
while IFS= read -r line; do
	case "$line" in
	"  digest: "*) continue ;;
	"- name: "*) name="${line#- name: }" ;;
	"  newName: "*) name="${line#  newName: }" ;;
	esac
	printf '%s\n' "$line" >>"$out"
	case "$line" in
	"  newTag: unreleased") ;;
	"  newTag: "*)
		tag="${line#  newTag: }"
		digest="$("$go" tool -modfile="$tools" crane digest "$name:$tag")"
		echo "$name:$tag $digest"
		printf '  digest: %s\n' "$digest" >>"$out"
		;;
	esac
done <"$file"
chmod --reference="$file" "$out"
mv "$out" "$file"
