#!/bin/sh
# fuzz.sh TIME runs every Fuzz function of the project for TIME each, one after the other.
set -eu
go="${GO:-go}"
time="${1:-10s}"
count=0
for file in $(grep -rl --include='*_test.go' '^func Fuzz' cmd internal test | sort); do
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		count=$((count + 1))
		echo "== $name in $(dirname "$file")"
		"$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")"
	done
done
echo "$count fuzz targets ran for $time each"
