#!/usr/bin/env bash
# release-run.sh releases to a registry of its own on 127.0.0.1, with a pair of keys made for the run, and then shows that what was
# tampered with does not pass. Nothing leaves the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

go="${GO:-go}"
work="$(mktemp -d)"
registry=""
end() {
	[ -z "$registry" ] || kill "$registry" 2>/dev/null || true
	rm -rf "$work"
}
trap end EXIT
crane() { "$go" tool -modfile="$PWD/test/kit/tools/go.mod" crane "$@"; }
say() { printf '%5ss  %s\n' "$SECONDS" "$*"; }

# refused WORDS COMMAND... fails unless the command fails, and says these words.
refused() {
	local words="$1"
	shift
	if "$@" >"$work/refusal" 2>&1; then
		echo "this succeeded and must not: $*" >&2
		return 1
	fi
	grep -q "$words" "$work/refusal" || { cat "$work/refusal" && echo "this failed without the words \"$words\": $*" >&2 && return 1; }
	say "refused, as it must be: $(grep -m 1 "$words" "$work/refusal" | cut -c 1-160)"
}

# The program itself, since `go tool` leaves its child behind when it is stopped.
test/progress.sh "building crane" "$go" build -modfile=test/kit/tools/go.mod -o "$work/crane" github.com/google/go-containerregistry/cmd/crane
mkdir "$work/blobs"
"$work/crane" registry serve --address 127.0.0.1:0 --disk "$work/blobs" 2>"$work/registry.log" &
registry=$!
until port="$(sed -n 's/.*serving on port //p' "$work/registry.log")" && [ -n "$port" ]; do
	kill -0 "$registry" 2>/dev/null || { cat "$work/registry.log" >&2 && exit 1; }
	sleep 0.1
done
export REGISTRY="127.0.0.1:$port/cloudblock-csi" TAG=v0.0.0-run COSIGN_PASSWORD="" KEY="$work/release"
test/progress.sh "building cosign" "$go" build -modfile=test/kit/tools/cosign/go.mod -o "$work/cosign" tool
for pair in release other; do
	"$work/cosign" generate-key-pair --output-key-prefix "$work/$pair" >/dev/null 2>&1
done

say "building and testing the images"
REGISTRY="" TAG="" build/release-images.sh # their archives are not named after a port
say "publishing to $REGISTRY"
build/publish.sh
cp bin/dist/published "$work"
say "collecting the files"
make --no-print-directory release-files PIN=1 SIDECARS=/dev/null
while IFS=@ read -r name digest; do
	case "$name" in */charts/*) continue ;; esac
	tar -xOzf bin/chart/*.tgz cloudblock-csi/values.yaml | grep "digest: $digest" >/dev/null || { echo "the chart does not name $digest" >&2 && exit 1; }
	grep -q "image: $name.*@$digest" bin/release/install-*.yaml || [ "${name##*/}" = lvm ] || # only a component has it
		{ echo "no bin/release/install-*.yaml names $name@$digest" >&2 && exit 1; }
done <bin/dist/published

say "trying what must fail"
controller="$(grep '/controller@' bin/dist/published)"
refused "accepted signatures do not match" env KEY="$work/other" build/verify.sh
# Somebody changes an image and moves the tag to it.
image="$REGISTRY/controller@$(cat bin/dist/*/controller.digest)"
crane mutate "$image" --label tampered=yes -t "$REGISTRY/controller:$TAG" >/dev/null 2>&1
refused "want sha256:" build/verify.sh
refused "no signatures found\|no matching" build/cosign.sh verify "$REGISTRY/controller@$(crane digest "$REGISTRY/controller:$TAG")"
crane tag "$controller" "$TAG" >/dev/null 2>&1
# A byte of a layer is changed in the registry's storage.
layer="$(find "$work/blobs" -type f -size +1M | sort | head -n 1)"
printf x | dd of="$layer" bs=1 seek=4096 conv=notrunc status=none
refused "validating" build/verify.sh
# An archive is not the one that was tested.
archive="$(echo bin/dist/*/controller.tar)"
mv "$archive" "$work/controller.tar"
cp "${archive%/*}/node.tar" "$archive"
refused "which was tested" build/publish.sh
mv "$work/controller.tar" "$archive"

say "released to a registry and verified from it:"
sed 's/^/        /' "$work/published"
