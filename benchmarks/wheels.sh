#!/usr/bin/env bash
# Fill a folder with the packages that gpu.sh's machine lacks, for Python 3.12 on x86-64: benchmarks/wheels.sh [FOLDER]
# 3 MB, from this machine's package index, in the locked versions; carry the folder to the machine without one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-benchmarks/wheels}
mkdir -p "$folder"
locked() { # NAME|NAME...: with the versions of requirements.lock
    grep -E "^($1)==" requirements.lock | sed 's/[ ;].*//'
}
pure='lazy-loader|hydra-core|omegaconf|antlr4-python3-runtime|pydantic|annotated-types|typing-inspection'
python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" $(locked "$pure")
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$folder" \
    --python-version 3.12 --platform manylinux_2_17_x86_64 $(locked pydantic-core)
ls -l "$folder"
