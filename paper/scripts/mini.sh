#!/usr/bin/env bash
# The paper in miniature: train every run of addition at five bits, ten seeds each, ask the probes, write the report.
# Arguments go to every run, as train.py takes them:
#
#   paper/scripts/mini.sh
#   paper/scripts/mini.sh runs_dir=elsewhere
#   paper/scripts/mini.sh seed=0-49              # fifty seeds, in packs of what fits in memory
#   JOBS=4 paper/scripts/mini.sh                 # four packs at a time; one for each core unless said
#
# Measured: 55 minutes on two CPU cores (Intel Xeon, torch 2.13) beside other work, 83 CPU minutes with the probes.
#
# A finished run is skipped and an interrupted one resumes, so the same command goes on where it stopped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export OMP_NUM_THREADS=1 # a pack for each core is faster than several cores for a pack

runs=runs
for option in "$@"; do
    case $option in runs_dir=*) runs=${option#runs_dir=} ;; esac
done
cores=$(python -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')

packs() { # the longest first
    cat <<'END'
task=random_output trainer.max_epochs=400
task.prompt_order=plain task.completion_order=plain trainer.max_epochs=200
ablation=squeezed_encoder trainer.max_epochs=200 trainer.stop_at=0.95
ablation=one_head trainer.max_epochs=200 trainer.stop_at=0.95
ablation=d_model_16 trainer.max_epochs=200 trainer.stop_at=0.95
ablation=no_feed_forward trainer.max_epochs=200 trainer.stop_at=0.95
model=transformer
split=vs_t
split=vs_v
task.prompt_order=plain
model=nanogpt
model=nanogpt split=vs_t
model=nanogpt split=vs_v
ablation=no_attention trainer.max_epochs=50
ablation=no_positional_encoding trainer.max_epochs=50
END
}
# 255 keeps xargs from starting further packs, all of which would meet the same wrong argument or full disk
packs | xargs -P "${JOBS:-$cores}" -L 1 sh -c 'python train.py scale=mini "$@" || exit 255' sh "$@"

python probe.py figure=fig4 run="$runs/add-random-transformer-none-bits5-d32-*" runs_dir="$runs"
python probe.py figure=appendixD probe.site=dec.2 probe.num_controls=20 run="$runs/add-random-transformer-none-bits5-d32-*" runs_dir="$runs"
python -m arith_erd.report "$runs" --claims mini --out report/mini
