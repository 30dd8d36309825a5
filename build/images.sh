#!/usr/bin/env bash
# images.sh [--push] builds both images for all architectures with docker buildx. Without --push the
# result stays in the builder's cache, because docker itself holds images of one architecture only.
set -euo pipefail
cd "$(dirname "$0")/.."

version="${VERSION:-$(git describe --tags --always --dirty)}"
commit="${COMMIT:-$(git rev-parse --short=12 HEAD)}"
for program in controller node; do
	docker buildx build --platform "${PLATFORMS:-linux/amd64,linux/arm64}" \
		--file "build/$program.Dockerfile" --tag "$(build/image-name.sh "$program")" \
		--build-arg VERSION="$version" --build-arg COMMIT="$commit" "$@" .
done
