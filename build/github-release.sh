#!/bin/sh
# github-release.sh publishes the files of bin/release as GitHub's release TAG, with the CHANGELOG's section of that version as its
# text. A version with a hyphen, such as v0.2.0-rc.1, is a pre-release, and never the latest.
#
#   github-release.sh            publishes
#   github-release.sh --print    prints the command and the text
set -eu
cd "$(dirname "$0")/.."

tag="${TAG:?TAG names no version}"
matches() { echo "$tag" | grep -qE "^v[0-9]+\.[0-9]+\.[0-9]+$1\$"; }
if matches ""; then
	kind="" # whether it is the latest, GitHub sees by the version
elif matches '-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*'; then
	kind="--prerelease --latest=false"
else
	echo "TAG=$tag: want v1.2.3, or v1.2.3-rc.1 for a pre-release" >&2 && exit 2
fi
TAG="$tag" build/names.sh check-push

# A pre-release has the section of the version that it comes before.
version="${tag#v}"
notes="$(awk -v head="## ${version%%-*}" '
	/^## / { inside = index($0 " ", head " ") == 1 }
	inside && !/^## /' CHANGELOG.md)"
[ -n "$notes" ] || { echo "CHANGELOG.md has no section \"## ${version%%-*}\"" >&2 && exit 1; }

if [ "${1:-}" = --print ]; then
	echo "gh release create $tag bin/release/* --verify-tag ${kind:+$kind }--notes-file -"
	echo "$notes"
	exit
fi
# shellcheck disable=SC2086 # one word per flag
echo "$notes" | gh release create "$tag" bin/release/* --verify-tag $kind --notes-file -
