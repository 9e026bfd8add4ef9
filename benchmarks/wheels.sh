#!/usr/bin/env bash
# Fill a folder with the pure-Python packages that gpu.sh's machine lacks: benchmarks/wheels.sh [FOLDER]
# 0.4 MB, from this machine's package index, in the locked versions; carry the folder to the machine without one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-benchmarks/wheels}
mkdir -p "$folder"
python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" \
    $(grep -E '^(hydra-core|omegaconf|antlr4-python3-runtime)==' requirements.lock | sed 's/[ ;].*//')
ls -l "$folder"
