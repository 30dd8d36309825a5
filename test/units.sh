#!/bin/sh
# units.sh BIN UNITS checks systemd units: their syntax by systemd-analyze, and that the programs in BIN know their flags.
set -eu
bin="$(cd "$1" && pwd)"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
for unit in "$2"/*.service; do
	sed "s#/usr/local/bin/#$bin/#" "$unit" >"$dir/$(basename "$unit")"
done
# Without --recursive-errors an unknown setting is a warning and the exit status 0.
systemd-analyze verify --man=no --recursive-errors=no "$dir"/*.service
for unit in "$dir"/*.service; do
	command="$(sed -n '/^ExecStart=/{:more;/\\$/{N;s/\\\n//;b more};s/^ExecStart=//p}' "$unit")"
	case "$command" in
	"$bin"/*) ;;
	*) echo "$unit starts \"$command\", not a program of $bin" >&2 && exit 1 ;;
	esac
	$command --version
done
