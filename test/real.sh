#!/usr/bin/env bash
# real.sh [clean] runs test/run/real against an account, and then removes what the run made, however it ended; with "clean"
# it only removes: see docs/contributing/testing.md. With EMULATED=1 the account is an emulated one.
#
#   CLOUD, TOKEN_FILE, REGION      of the account; FOLDER too on Yandex Cloud
#   MACHINES                       ids of two machines in REGION, with a comma, for what attaches volumes
#   CASSETTE                       file for what was said to the API; by default bin/cassette-CLOUD.json
#   RUN                            six hexadecimal digits; by default others each time
#   VOLUMES, LIMIT                 how many volumes and snapshots the run may make, and how long it may take, as 60m
set -euo pipefail
cd "$(dirname "$0")/.."

run="${RUN:-$(od -An -N3 -tx1 /dev/urandom | tr -d ' \n')}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
program="$work/real.test"
"${GO:-go}" test -c -tags real -o "$program" ./test/run/real

file="${CASSETTE:-bin/cassette-${CLOUD:-}.json}"
mkdir -p "$(dirname "$file")"
# A recording of Linode's API is compared with the emulator.
compare() {
	[ "${CLOUD:-}" != linode ] || "${GO:-go}" test -count=1 -v -run '^TestACassetteIsAnsweredAsRecorded$' ./test/check/recorded -args -cassette "$(realpath "$file")"
}

arguments=(-test.run '^(TestContract|TestLife)$' -cloud "${CLOUD:-}" -run-word "$run")
recording=(-cassette "$file")
if [ -n "${EMULATED:-}" ]; then
	"$program" -test.timeout 10m "${arguments[@]}" "${recording[@]}" -emulated
	compare
	exit
fi
arguments+=(-token-file "${TOKEN_FILE:-}" -region "${REGION:-}" -folder "${FOLDER:-}" -machines "${MACHINES:-}" -endpoint "${ENDPOINT:-}")
if [ "${1:-}" = clean ]; then
	: "${RUN:?names the run whose volumes are removed}"
	"$program" "${arguments[@]}" -clean
	exit
fi

status=0
trap : INT TERM # what was made is removed then, too
"$program" -test.v -test.timeout 0 "${arguments[@]}" "${recording[@]}" -volumes "${VOLUMES:-400}" -limit "${LIMIT:-60m}" || status=$?
[ "$status" != 3 ] || exit 3 # nothing was sent
"$program" "${arguments[@]}" -clean || status=1
compare || status=1
exit "$status"
