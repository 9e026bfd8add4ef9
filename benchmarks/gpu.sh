#!/usr/bin/env bash
# Check, measure and train on a GPU machine, unattended, within a time limit:
#
#   benchmarks/gpu.sh [MINUTES] [FOLDER]          (default: 25, paper/results/gpu)
#
# Needs Python 3.12 with torch, lightning, torchmetrics, safetensors, rich, pandas, scipy and matplotlib, and no package
# index: Hydra, pydantic and what they need come from benchmarks/wheels (see wheels.sh). In this order:
#
#   1. correctness.py, and at the same time the same of each variant of compiled attention, and their compilation; if the
#      first fails, nothing else is done; a variant that fails is left out
#   2. profiles and timings alone (profile_gpu.py): each variant, CUDA graphs or not; the quickest is used from here on
#   3. with it, packs of several sizes, the miniature's too, and bf16
#   4. whole epochs; with AUTHORS=PATH, a clone of the paper authors' repository, beside theirs
#   5. five seeds to 95% in fp32 and in bf16, and the runs of paper/scripts/paper.sh, in order of value, several packs at
#      once, until the time is up
#   6. the report
#
# Rows of 2 and 3 go to FOLDER/gpu.csv, profiles to FOLDER/profiles.txt, epochs to 95% to FOLDER/precision.csv. Run it
# again to continue: checks and measurements are kept, runs resume.
# DRY=1 goes through all of it at toy sizes: 13 minutes on two CPU cores. Without a GPU everything runs on the CPU.
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

variants=(library innermost triton) steps=20 sizes=("transformer 64" "nanogpt 5" "mini 256" "mini 1000" "nanogpt 256")
main=("transformer 5" "nanogpt 64") graphs=true tiny=() small=(model.net.num_layers=2) made=()
if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    variants=(library innermost) main=("transformer 1" "nanogpt 1") sizes=() graphs=false # a larger pack gains nothing
fi
if [ -n "${DRY:-}" ]; then
    main=("transformer 1" "nanogpt 1") sizes=("mini 1") steps=2 small=()
    tiny=(task.bits=4 model.net.num_layers=1) made=(scale=smoke trainer.max_epochs=2 seed=0)
fi

profile() { # MODEL REPLICAS VARIANT GRAPHS ARGUMENTS...: the training steps of one pack
    local model=$1 replicas=$2 what="$1 $3" graphs=$4
    local -x ARITH_ERD_ATTENTION=$3
    shift 4
    [ "$graphs" = false ] || what="$what graphs"
    [[ "$*" != *bf16* ]] || what="$what bf16"
    [ "$model" != mini ] || set -- scale=mini "$@"
    grep -sq "^$what,$replicas," "$out/gpu.csv" && return 0
    within 200 python3 benchmarks/profile_gpu.py --packs "$replicas" --what "$what" "$@" "${tiny[@]}" \
        trainer.compile=true trainer.cuda_graphs="$graphs" model="${model/mini/nanogpt}" || echo "not measured: $what, $replicas"
}
check() { # NAME ARGUMENTS...: the checks of a variant, or of what every run rests on; kept once they are made
    local name=$1 status=0
    shift
    [ ! -f "$out/correctness$name.txt" ] || return 0
    within 600 python3 benchmarks/correctness.py "$@" "${tiny[@]}" >"$out/.correctness$name.txt" 2>&1 || status=$?
    case $status in
        0 | 1) mv "$out/.correctness$name.txt" "$out/correctness$name.txt" ;;
        *) echo "no time for all checks$name, or they broke:" && tail -3 "$out/.correctness$name.txt" ;;
    esac
}

echo "== Does it compute the same?"
unset ARITH_ERD_ATTENTION
check "" &
for variant in "${variants[@]}"; do
    ARITH_ERD_ATTENTION=$variant check "-$variant" "${small[@]}" &
    for pack in "${main[@]}"; do # fills the compiler's cache, so that what is timed later starts soon
        [ -n "${DRY:-}" ] || profile $pack "$variant" $graphs --steps 1 >/dev/null 2>&1 &
    done
done
wait
cat "$out"/correctness*.txt 2>/dev/null || true
if grep -s ' FAILED ' "$out/correctness.txt" "$out/.correctness.txt" | grep -qv 'CUDA graphs'; then
    echo "it does not: no measurement follows"
    exit 1
fi
[ -f "$out/correctness.txt" ] || { echo "time is up before all checks were made"; exit 1; }
! grep -q 'CUDA graphs.* FAILED ' "$out"/correctness*.txt || graphs=false
right=()
for variant in "${variants[@]}"; do # all checks were made, for both models, and none failed
    if [ -f "$out/correctness-$variant.txt" ] && ! grep -v 'CUDA graphs' "$out/correctness-$variant.txt" | grep -q ' FAILED '
    then right+=("$variant"); else echo "left out, since its checks failed or were not all made: $variant"; fi
done

echo "== How fast?"
timed() {
    profile "$@" --steps "$steps" --csv "$out/gpu.csv" | tee -a "$out/profiles.txt"
}
for pack in "${main[@]}"; do
    for variant in "${right[@]}"; do
        timed $pack "$variant" $graphs
    done
done
[ "$graphs" = false ] || timed ${main[0]} library false
best=$(python3 - "$out/gpu.csv" "${main[@]}" <<<'
import csv, sys
ms, packs = {}, [tuple(pack.split()) for pack in sys.argv[2:]]
for row in csv.DictReader(open(sys.argv[1])):
    model, variant = row["what"].split(maxsplit=1)
    if "bf16" not in variant:
        ms.setdefault(variant, {})[model, row["replicas"]] = float(row["ms"])
total = {variant: sum(each[pack] for pack in packs) for variant, each in ms.items() if each.keys() >= set(packs)}
print(min(total, key=total.get))' 2>/dev/null) || best="library"
read -r ARITH_ERD_ATTENTION with_graphs <<<"$best"
graphs=$([ -n "$with_graphs" ] && echo true || echo false)
export ARITH_ERD_ATTENTION
echo "ARITH_ERD_ATTENTION=$ARITH_ERD_ATTENTION trainer.cuda_graphs=$graphs from here on"

echo "== How many at once?"
for pack in "${sizes[@]}"; do
    timed $pack "$ARITH_ERD_ATTENTION" $graphs
done
for pack in "${main[@]}"; do
    timed $pack "$ARITH_ERD_ATTENTION" $graphs trainer.precision=bf16-mixed
done

echo "== Whole epochs"
measure() { # NAME ARGUMENTS...: once
    local name=$1 partial="$out/.$1"
    shift
    [ ! -f "$out/$name.json" ] || return 0
    if within 420 python3 benchmarks/epoch.py --out "$partial.json" "$@" | tee "$partial.txt"; then
        mv "$partial.json" "$out/$name.json"
        mv "$partial.txt" "$out/$name.txt"
    else
        echo "not measured: $name"
    fi
}
reference=()
[ -z "${AUTHORS:-}" ] || [ -n "${DRY:-}" ] || reference=(--reference "$AUTHORS")
for epoch in "add transformer" "mul transformer" "add nanogpt"; do
    read -r task model <<<"$epoch"
    measure "$task-$model" "${reference[@]}" --repeats 1 "task=$task" "model=$model" "${tiny[@]}" \
        trainer.cuda_graphs=$graphs
done

at_once=10 # packs; one leaves most of an H100 idle
if command -v nvidia-cuda-mps-control >/dev/null; then
    nvidia-cuda-mps-control -d || true # lets kernels of several programs overlap; fails if it runs already
else
    at_once=$(nproc)
fi
echo "== Training, $at_once packs at once"
curves() {
    for run in model={transformer,nanogpt}" trainer.precision="{32-true,bf16-mixed}; do
        echo "$run seed=0-4 trainer.stop_at=0.95 ${made[*]} runs_dir=$out/precision trainer.cuda_graphs=$graphs"
    done
}
{ curves && TRAIN=echo paper/scripts/paper.sh "${made[@]}" "runs_dir=$out/runs" trainer.cuda_graphs=$graphs; } \
    | OMP_NUM_THREADS=1 within 86400 xargs -P "$at_once" -L 1 python3 train.py -m \
    || sleep 15 # a run failed, or time is up and interrupted runs save; the report is written in any case

echo "== Report"
python3 -P -m arith_erd.runs "$out/precision" --csv >"$out/precision.csv" || true
python3 -P -m arith_erd.report "$out/runs" --out "$out/report" || true
cp "$out"/report/{claims,runs}.csv "$out" 2>/dev/null || true
