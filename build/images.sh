#!/usr/bin/env bash
# images.sh [--push] builds the images for all architectures with docker buildx. Without --push the
# result stays in the builder's cache, because docker itself holds images of one architecture only.
# names.sh has the names; with --push a registry gets a list of contents and a provenance with each image.
set -euo pipefail
cd "$(dirname "$0")/.."

version="$(build/names.sh version)"
commit="${COMMIT:-$(git rev-parse --short=12 HEAD)}"
attest=()
if [ "${1:-}" = --push ]; then
	build/names.sh check-push
	attest=(--sbom=true --provenance=mode=max)
fi
for program in controller node lvm; do
	docker buildx build --platform "${PLATFORMS:-linux/amd64,linux/arm64}" \
		--file "build/$program.Dockerfile" --tag "$(build/names.sh image "$program")" \
		--build-arg VERSION="$version" --build-arg COMMIT="$commit" "${attest[@]}" "$@" .
done
