#!/bin/sh
# names.sh says what the images of a build are called. Nothing else knows.
#
#   names.sh version              what --version prints: `git describe`, or $VERSION
#   names.sh image PROGRAM        $REGISTRY/PROGRAM:$TAG
#   names.sh component DIR        writes a kustomize component that sets these names in an overlay
#   names.sh check-push           fails if $TAG may stand for two different builds
#
#   REGISTRY   default ghcr.io/cloudblock-csi; capitals become lower case, as the owner of a fork may have some
#   TAG        default is the version
set -eu

version="${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}"
registry="$(printf %s "${REGISTRY:-ghcr.io/cloudblock-csi}" | tr '[:upper:]' '[:lower:]')"
tag="${TAG:-$version}"

case "$tag" in
[.-]* | *[!A-Za-z0-9_.-]*) echo "TAG=$tag: an image's tag has letters, digits, '_', '.' and '-' only" >&2 && exit 2 ;;
esac
case "$registry" in
*/ | *://* | *[!a-z0-9_.:/-]*) echo "REGISTRY=$registry: want HOST[:PORT]/PATH, for example registry.example.com/storage" >&2 && exit 2 ;;
esac

component() {
	mkdir -p "$1"
	cat >"$1/kustomization.yaml" <<-YAML
		# The images of cloudblock-csi $version. Written by make; list this folder under "components" of an overlay.
		apiVersion: kustomize.config.k8s.io/v1alpha1
		kind: Component
		images:
		- name: ghcr.io/cloudblock-csi/controller
		  newName: $registry/controller
		  newTag: "$tag"
		- name: ghcr.io/cloudblock-csi/lvm
		  newName: $registry/lvm
		  newTag: "$tag"
		- name: ghcr.io/cloudblock-csi/node
		  newName: $registry/node
		  newTag: "$tag"
	YAML
}

# A node that has an image of this name does not pull it again.
check_push() {
	case "$tag" in
	*-dirty | unknown | unreleased | latest)
		echo "TAG=$tag can stand for more than one build, and a node that has it does not pull it again: commit first, or give another TAG" >&2
		exit 2
		;;
	esac
}

case "${1:-}" in
version) echo "$version" ;;
image) echo "$registry/${2:?image needs a program}:$tag" ;;
component) component "${2:?component needs a folder}" ;;
check-push) check_push ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
