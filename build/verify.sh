#!/usr/bin/env bash
# verify.sh reads what publish.sh has published from the registry, as a user would, and fails unless each name has the digest of
# bin/dist/published, every byte fits its digest, and signature, provenance and list of contents are of the trusted signer.
#
#   TAG             see names.sh
#   KEY, IDENTITY   see cosign.sh
set -euo pipefail
cd "$(dirname "$0")/.."

go="${GO:-go}"
crane() { "$go" tool -modfile="$PWD/test/kit/tools/go.mod" crane "$@"; }
name="$(build/names.sh image controller)"
tag="${name##*:}"
commit="$(git rev-parse HEAD)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# signed fails unless the signature is good and the provenance names the commit.
signed() {
	build/cosign.sh verify "$1" >"$work/out" 2>"$work/err" || { cat "$work/err" >&2 && return 1; }
	build/cosign.sh verify-attestation slsaprovenance1 "$1" >"$work/out" 2>"$work/err" || { cat "$work/err" >&2 && return 1; }
	sed -n 's/.*"payload":"\([^"]*\)".*/\1/p' "$work/out" | while IFS= read -r payload; do echo "$payload" | base64 -d; done >"$work/statements"
	grep -q "\"gitCommit\": *\"$commit\"" "$work/statements" || { echo "$1: no provenance names the commit $commit" >&2 && return 1; }
}

image() {
	local digest
	digest="$(crane digest "$1:$tag")"
	[ "$digest" = "$2" ] || { echo "$1:$tag is $digest, want $2" >&2 && return 1; }
	crane validate --remote "$1@$2" >"$work/out" 2>&1 || { cat "$work/out" >&2 && return 1; }
	signed "$1@$2"
	for file in bin/dist/*/"${1##*/}.digest"; do
		signed "$1@$(cat "$file")"
		build/cosign.sh verify-attestation cyclonedx "$1@$(cat "$file")" >"$work/out" 2>"$work/err" || { cat "$work/err" >&2 && return 1; }
	done
}

chart() {
	local plain=""
	case "$1" in 127.0.0.1:*) plain=--plain-http ;; esac
	signed "$1@$2"
	(cd test/check/charts && "$go" tool helm pull $plain "oci://$1@$2" --destination "$work" >"$work/out" 2>&1) || { cat "$work/out" >&2 && return 1; }
	cmp "$work"/*.tgz bin/chart/*.tgz
}

while IFS=@ read -r name digest; do
	case "$name" in
	*/charts/*) chart "$name" "$digest" ;;
	*) image "$name" "$digest" ;;
	esac
	echo "verified $name@$digest"
done <bin/dist/published
