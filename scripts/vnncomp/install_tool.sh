#!/bin/bash
# Install boundlab for the competition (VNN-COMP): a virtual environment beside the package.
#   install_tool.sh v1
# PYTHON: the interpreter that makes the environment (3.11 or later; python3 if it is not set).
set -eu

if [ "${1:-}" != "v1" ]; then
	echo "expected the version string v1, not '${1:-}'" >&2
	exit 1
fi

ROOT=$(dirname "$(dirname "$(dirname "$(realpath "$0")")")")
ENVIRONMENT="${BOUNDLAB_ENVIRONMENT:-$ROOT/.venv-vnncomp}"

"${PYTHON:-python3}" -m venv "$ENVIRONMENT"
"$ENVIRONMENT/bin/python" -m pip install --quiet --constraint "$ROOT/constraints.txt" \
	"$ROOT[onnx,milp,vnnlib]" onnxruntime
"$ENVIRONMENT/bin/python" -m boundlab --version
