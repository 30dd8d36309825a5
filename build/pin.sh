#!/usr/bin/env bash
# pin.sh COMPONENT [SIDECARS] adds to a component of names.sh the digest of every image, by asking its registry, and
# the sidecars' images with theirs. SIDECARS is the kustomization that has the sidecars' versions. The tree itself has
# no digests, because an image that is made on a machine, as for `make cluster`, has another one.
set -euo pipefail
cd "$(dirname "$0")/.."

component="${1:?pin.sh needs the component}"
sidecars="${2:-deploy/components/images/kustomization.yaml}"
tools="$PWD/test/kit/tools/go.mod"
go="${GO:-go}"
out="$(mktemp "$component.XXXXXX")"
trap 'rm -f "$out"' EXIT

# Each image is its name, perhaps another name, and its tag, on a line each. Digests of an earlier run are asked for again.
pinned() {
	local line name="" tag digest
	while IFS= read -r line; do
		case "$line" in
		"  digest: "*) continue ;;
		"- name: "*) name="${line#- name: }" ;;
		"  newName: "*) name="${line#  newName: }" ;;
		esac
		printf '%s\n' "$line"
		case "$line" in
		"  newTag: "*)
			tag="${line#  newTag: }" tag="${tag//\"/}"
			digest="$("$go" tool -modfile="$tools" crane digest "$name:$tag")" || return 1
			echo "$name:$tag $digest" >&2
			printf '  digest: %s\n' "$digest"
			;;
		esac
	done
}

# entries are the sidecars' lines of their kustomization.
entries() {
	awk '/^images:/ { images = 1; next }
		/^[^ -]/ { images = 0 }
		/^- name: / { ours = $3 ~ /^ghcr\.io\/cloudblock-csi\// }
		images && !ours' "$sidecars"
}

# ours is the component without what an earlier run added.
ours() {
	awk '/^- name: / { added = $3 !~ /^ghcr\.io\/cloudblock-csi\// } /^[^ -]/ { added = 0 } !added' "$component"
}

ours | while IFS= read -r line; do
	printf '%s\n' "$line"
	[ "$line" != images: ] || entries
done | pinned >"$out"
chmod --reference="$component" "$out"
mv "$out" "$component"
