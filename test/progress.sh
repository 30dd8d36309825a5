#!/bin/sh
# progress.sh WORDS COMMAND... runs a command, and says every 15 s that it is still at it.
words="$1"
shift
echo "$words"
# It ends with its parent, too, and holds none of its output's readers.
parent=$$
(
	seconds=0
	while sleep 15 >/dev/null 2>&1 && kill -0 "$parent" 2>/dev/null; do
		seconds=$((seconds + 15))
		echo "  $words: $seconds s"
	done
) &
beat=$!
"$@"
code=$?
kill "$beat" 2>/dev/null
wait "$beat" 2>/dev/null
exit "$code"
