#!/bin/bash
# Before an instance of the competition (VNN-COMP), not timed: end what the instance before left
# running, and look whether the files are there.
#   prepare_instance.sh v1 CATEGORY ONNX VNNLIB
# ONNX may be a list of pairs, [('f', 'a.onnx'), ('g', 'b.onnx')]; any file may be packed (.gz).
set -u
. "$(dirname "$(realpath "$0")")/common.sh"

check_version "${1:-}"
if [ "$#" -ne 4 ]; then
	echo "usage: prepare_instance.sh v1 CATEGORY ONNX VNNLIB" >&2
	exit 1
fi

# Only the group that run_instance.sh has noted, and only if it is still a verification of ours.
if [ -f "$NOTED" ]; then
	GROUP=$(cat "$NOTED")
	for PROCESS in $(pgrep -g "$GROUP" -f "boundlab verify"); do
		kill -9 "$PROCESS"
		echo "ended process $PROCESS of an earlier instance"
	done
	rm -f "$NOTED"
fi

"$PYTHON" - "$3" "$4" <<'PYTHON'
import sys
from pathlib import Path

from boundlab.commands.competition import find_file, named_networks
from boundlab.errors import BoundlabError

try:
    for file in (*named_networks(sys.argv[1]).values(), sys.argv[2]):
        print(find_file(Path(), file))
except BoundlabError as error:
    sys.exit(str(error))
PYTHON
