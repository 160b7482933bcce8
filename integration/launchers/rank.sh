#!/bin/sh
# One rank, as any launcher can start it: rank.sh FOLDER COMMAND...
#
# Leaves in FOLDER what this process was told (its environment), what the command wrote to its --json, and its words with
# its exit status.
folder=$1
shift
mine=$folder/$(uname -n).$$
env > "$mine.env"
"$@" --json "$mine.json" > "$mine.words" 2>&1
status=$?
echo "exit $status" >> "$mine.words"
exit $status
