# What prepare_instance.sh and run_instance.sh share: the interpreter, and where the number of the
# process group at work is noted.
ROOT=$(dirname "$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")")
PYTHON="${BOUNDLAB_PYTHON:-${BOUNDLAB_ENVIRONMENT:-$ROOT/.venv-vnncomp}/bin/python}"
NOTED="${TMPDIR:-/tmp}/boundlab-vnncomp-$(id -u).group"

check_version() {
	if [ "$1" != "v1" ]; then
		echo "expected the version string v1, not '$1'" >&2
		exit 1
	fi
}
