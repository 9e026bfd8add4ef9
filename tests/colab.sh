#!/usr/bin/env bash
# The wheel on top of the versions that Colab has (November 2026): pip replaces none of them, as a restart would lose the
# user's session, and the quick tests of what a notebook uses pass. Colab has Python 3.12: PYTHON=python3.12 tests/colab.sh
# A wheel that was built before may be given: tests/colab.sh dist/*.whl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
COLAB=(numpy==2.1.3 pandas==2.2.3 rich==13.9.4 wandb==0.28.1)
TESTS=(tests/unit/interp tests/unit/tasks tests/unit/probes)

folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
python=$folder/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check "$@"; }
grep -vE '^(numpy|pandas|rich|wandb|wandb-workspaces)=' requirements.lock > "$folder/constraints.txt"
pip install -qq -c "$folder/constraints.txt" torch "${COLAB[@]}" pytest pytest-xdist hypothesis 'setuptools>=77'
pip freeze > "$folder/before.txt"
[ -n "${1:-}" ] || pip wheel -qq --no-deps --no-build-isolation -w "$folder" .
pip install -qq -c "$folder/constraints.txt" "${1:-$(echo "$folder"/arith_erd-*.whl)}"
pip freeze > "$folder/after.txt"
if replaced=$(grep -vxFf "$folder/after.txt" "$folder/before.txt"); then
    echo "the wheel replaced: $replaced" >&2
    exit 1
fi
OMP_NUM_THREADS=1 "$python" -m pytest -p no:cacheprovider -n auto --dist loadfile "${TESTS[@]}"
