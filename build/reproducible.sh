#!/usr/bin/env bash
# reproducible.sh builds both programs from the tracked files in two folders of different names, each with
# an empty build cache, and fails unless the results are equal, byte by byte.
set -euo pipefail
cd "$(dirname "$0")/.."

go="${GO:-go}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

for folder in one another/deeper; do
	mkdir -p "$work/$folder"
	git ls-files -z -- Makefile build cmd internal go.mod go.sum | while IFS= read -r -d '' f; do [ ! -e "$f" ] || printf '%s\0' "$f"; done |
		tar --null --files-from=- -cf - | tar -xf - -C "$work/$folder"
	echo "building in $folder"
	GOCACHE="$work/cache" make --no-print-directory -s -C "$work/$folder" build GO="$go" \
		VERSION="$(build/names.sh version)" COMMIT="${COMMIT:-unknown}"
	(cd "$work/$folder/bin" && sha256sum cloudblock-controller cloudblock-node) >"$work/sums-${folder%%/*}"
	rm -rf "$work/cache"
done
cat "$work/sums-one"
diff "$work/sums-one" "$work/sums-another" && echo "equal in both folders"
