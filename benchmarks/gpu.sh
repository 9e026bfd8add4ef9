#!/usr/bin/env bash
# Check, measure and train on a GPU machine, unattended, within a time limit:
#
#   benchmarks/gpu.sh [MINUTES] [FOLDER]          (default: 25, paper/results/gpu)
#
# Needs Python 3.12 with torch, lightning, torchmetrics, safetensors, rich, pandas, scipy and matplotlib, and no package
# index: Hydra, pydantic and what they need come from benchmarks/wheels (see wheels.sh). In this order:
#
#   1. correctness.py; if it fails, nothing else is done
#   2. the steps of a pack of five, with CUDA graphs if these are right; from here on they are used if they were quicker
#   3. whole epochs; with AUTHORS=PATH, a clone of the paper authors' repository, beside theirs
#   4. packs of 1 to 256
#   5. the runs of paper/scripts/paper.sh, in order of value, several packs at once, until the time is up
#   6. the report
#
# Run it again to continue: checks and measurements are kept, runs resume.
# DRY=1 goes through all of it in a few minutes, at toy sizes; without a GPU everything runs on the CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${1:-25}
out=${2:-paper/results/gpu}
end=$((SECONDS + minutes * 60 - 30)) # the report takes half a minute
mkdir -p "$out"

site=$(mktemp -d)
trap 'rm -rf "$site" "$out"/.*.{json,txt}' EXIT
for wheel in benchmarks/wheels/*.whl; do
    [ -f "$wheel" ] && python3 -m zipfile -e "$wheel" "$site"
done
export PYTHONPATH="$PWD/src:$site${PYTHONPATH:+:$PYTHONPATH}"

# `within SECONDS COMMAND...` gives it no more than is left; a program that is asked to leave saves what it can resume.
within() {
    local limit=$1 left=$((end - SECONDS))
    shift
    [ "$left" -gt 20 ] || { echo "no time left for: $*" >&2; return 124; }
    timeout --signal=TERM --kill-after=15 "$((limit < left - 15 ? limit : left - 15))" "$@"
}

pack=5 sizes=(1 5 15 64 256) steps=48 tiny=() made=()
if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    sizes=(1) steps=12 # a bigger pack gains nothing on a CPU
fi
if [ -n "${DRY:-}" ]; then
    pack=2 sizes=(1) steps=4
    tiny=(task.bits=4 model.net.num_layers=1) made=(scale=smoke trainer.max_epochs=2 seed=0)
fi

echo "== Does it compute the same?"
if [ ! -f "$out/correctness.txt" ]; then
    status=0
    within 500 python3 benchmarks/correctness.py "${tiny[@]}" 2>&1 | tee "$out/.correctness.txt" || status=$?
    case $status in
        0) mv "$out/.correctness.txt" "$out/correctness.txt" ;;
        124 | 137) echo "time is up before all checks were made" ;;
        *) echo "it does not: no measurement follows"; exit 1 ;;
    esac
    if grep -s ' FAILED ' "$out/.correctness.txt" | grep -qv '^CUDA graphs'; then # and then the time was up
        echo "it does not: no measurement follows"
        exit 1
    fi
fi

echo "== How fast?"
measure() { # NAME ARGUMENTS...: once
    local name=$1 partial="$out/.$1"
    shift
    [ ! -f "$out/$name.json" ] || return 0
    if within 420 python3 benchmarks/epoch.py --steps "$steps" --out "$partial.json" "$@" \
        | tee "$partial.txt"; then
        mv "$partial.json" "$out/$name.json"
        mv "$partial.txt" "$out/$name.txt"
    else
        echo "not measured: $name"
    fi
}
steps_of() { # NAME REPLICAS ARGUMENTS...: the training steps of one pack
    measure "$1" --no-epochs --repeats 1 --packs "$2" "${tiny[@]}" "${@:3}"
}
quicker() { # A B: whether a step of the first measurement took less time
    python3 - "$out/$1.json" "$out/$2.json" 2>/dev/null <<<'
import json, sys
a, b = (min(json.load(open(path))["packs"][0]["seconds_per_step"]) for path in sys.argv[1:])
sys.exit(a >= b)'
}
graphs=false
steps_of plain "$pack"
checked=$(cat "$out/correctness.txt" "$out/.correctness.txt" 2>/dev/null || true)
if [ "$(grep -c '^CUDA graphs.* ok ' <<<"$checked")" -eq 2 ]; then # for both models
    steps_of graphs "$pack" trainer.cuda_graphs=true
    ! quicker graphs plain || graphs=true
fi
echo "trainer.cuda_graphs=$graphs from here on"
reference=()
[ -z "${AUTHORS:-}" ] || [ -n "${DRY:-}" ] || reference=(--reference "$AUTHORS")
for epoch in "add transformer" "mul transformer" "add nanogpt"; do
    read -r task model <<<"$epoch"
    measure "$task-$model" "${reference[@]}" --repeats 1 --packs none "task=$task" "model=$model" "${tiny[@]}" \
        trainer.cuda_graphs=$graphs
done

echo "== How many at once?"
for size in "${sizes[@]}"; do
    steps_of "pack-$size" "$size" trainer.cuda_graphs=$graphs
done
at_once=10 # packs; one leaves most of an H100 idle
if command -v nvidia-cuda-mps-control >/dev/null; then
    nvidia-cuda-mps-control -d || true # lets kernels of several programs overlap; fails if it runs already
else
    at_once=$(nproc)
fi
echo "== Training, $at_once packs at once"
TRAIN=echo paper/scripts/paper.sh "${made[@]}" "runs_dir=$out/runs" trainer.cuda_graphs=$graphs \
    | OMP_NUM_THREADS=1 within 86400 xargs -P "$at_once" -L 1 python3 train.py -m \
    || sleep 15 # a run failed, or time is up and interrupted runs save; the report is written in any case

echo "== Report"
python3 -P -m arith_erd.report "$out/runs" --out "$out/report" || true
cp "$out"/report/{claims,runs}.csv "$out" 2>/dev/null || true
