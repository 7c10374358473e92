#!/bin/bash
# An instance of the competition (VNN-COMP): writes sat, unsat, unknown, timeout or error to OUT,
# behind sat the counterexample, in the form of the version of VNN-LIB that the property has.
#   run_instance.sh v1 CATEGORY ONNX VNNLIB OUT TIMEOUT
set -u
. "$(dirname "$(realpath "$0")")/common.sh"

check_version "${1:-}"
if [ "$#" -ne 6 ]; then
	echo "usage: run_instance.sh v1 CATEGORY ONNX VNNLIB OUT TIMEOUT" >&2
	exit 1
fi
ONNX=$3 VNNLIB=$4 OUT=$5 TIMEOUT=$6

# An answer that stands if the whole group is ended from outside.
echo timeout >"$OUT"
# A group of its own, by which prepare_instance.sh finds it.
set -m
"$PYTHON" -m boundlab verify "$VNNLIB" --network "$ONNX" --timeout "$TIMEOUT" --result "$OUT" &
echo $! >"$NOTED"
wait $!
CODE=$?
rm -f "$NOTED"
if [ "$CODE" -ne 0 ]; then
	echo error >"$OUT"
fi
exit 0
