#!/bin/sh
# modules.sh downloads the Go modules of every go.mod of the project, also those that only `go mod tidy` reads. The go command
# does not repeat a request that failed, so this does.
set -eu
cd "$(dirname "$0")/.."
go="${GO:-go}"

# tidied reads all that `go mod tidy` reads. That a go.mod is not tidy is for `make generated` to say.
tidied() {
	[ "$1" != go.mod ] || diff="$($go mod tidy -diff)" || [ -n "$diff" ]
}

# The modules of test/run/cluster are Kubernetes itself, which only `make cluster` needs, and cosign's only a release.
for file in $(git ls-files 'go.mod' '*/go.mod' ':!test/run/cluster' ':!test/kit/tools/cosign'); do
	tries=1
	until (cd "$(dirname "$file")" && $go mod download -modfile="$(basename "$file")" && tidied "$(basename "$file")"); do
		[ "$tries" -lt 5 ] || exit 1
		echo "$file: attempt $tries of 5 failed, next one in $((tries * 5)) s" >&2
		sleep $((tries * 5))
		tries=$((tries + 1))
	done
	echo "$file: all modules are here"
done
