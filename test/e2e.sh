#!/bin/sh
# e2e.sh runs the tests that need root: those in files with the build tag e2e. `make test` runs the
# others. Much of it is waiting, so three packages and six tests of each run side by side; the longest
# package, test/run/e2e, begins. SHORT=1 leaves out the race detector, five of six places of the kill loops, and in what
# takes longest two of three filesystems.
set -eu
go="${GO:-go}"
files=$(grep -rl --include='*_test.go' '^//go:build e2e' cmd internal test/run/e2e test/kit)
packages=$(for file in $files; do echo "./$(dirname "$file")"; done | sort -ru)
tests=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' $files | grep -vx TestMain | sort -u | paste -sd '|')
how=-race
export CGO_ENABLED=1
if [ -n "${SHORT:-}" ]; then
	how='-short -vet=off -ldflags=-w' # with what make test has compiled
	export CGO_ENABLED=0
	echo "SHORT=1: without -race, the kill loops in one pool, the longest tests on one filesystem and with fewer rounds"
fi
echo "running $(echo "$tests" | tr '|' '\n' | wc -l) tests that need root in $(echo "$packages" | wc -l) packages"
# shellcheck disable=SC2086 # several words
exec "$go" test $how -count=1 -timeout 30m -p 3 -parallel 6 -tags e2e -run "^($tests)\$" $packages
