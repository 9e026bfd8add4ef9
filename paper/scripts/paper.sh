#!/usr/bin/env bash
# Train the runs behind the paper's claims, the most informative first. Arguments go to every run, as train.py takes them:
#
#   paper/scripts/paper.sh
#   timeout 8h paper/scripts/paper.sh runs_dir=runs      # stops after 8 hours; the same command continues where it stopped
#   paper/scripts/paper.sh scale=smoke trainer.max_epochs=2 seed=0 runs_dir=smoke    # every kind of run, made tiny: 2 minutes
#
# A finished run is skipped, an interrupted one resumes, and one that fails leaves the others alone. Hours are those of
# one CPU core, compiled (AMD EPYC, Zen 5: 10 s an epoch of addition, 12 s of multiplication). On a CPU each seed is a
# run of its own, so that every finished seed counts; on a GPU the seeds of a line are one pack.
#
# Several runs at a time, two for example, each with one thread:
#
#   TRAIN=echo paper/scripts/paper.sh | OMP_NUM_THREADS=1 xargs -P 2 -L 1 python train.py -m
#
# With xargs two lines can reach the same run at once; the second one says "in use", and the next command does the rest.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
trap 'exit 143' TERM # once the run in progress has saved

options=("$@")
train() { # OVERRIDES...: a sweep; a signal ends the script, a failed run does not
    ${TRAIN:-python train.py -m} "$@" ${options[@]+"${options[@]}"} || [ $? -lt 128 ] || exit 143
}
seeds() { # FIRST LAST
    if command -v nvidia-smi >/dev/null; then echo "seed=$1-$2"; else echo "seed=$(seq -s, "$1" "$2")"; fi
}
held_out="split=vs_v,vs_t model=transformer,nanogpt"
until_95="trainer.max_epochs=1000 trainer.stop_at=0.95"

# Figures 3 and E.8, addition: held-out regions. 3 hours.
train task=add $held_out $(seeds 0 4)
# Figures 1 and E.7: the random split. 1.5 hours of addition, 5 of multiplication.
train task=add model=transformer,nanogpt $(seeds 0 4)
train task=mul model=transformer,nanogpt $(seeds 0 2)
# Table 3, addition: the ablations that learn. 4 hours.
train task=add ablation=one_head,d_model_32,no_feed_forward,squeezed_encoder $until_95 $(seeds 0 4)
# Figures 3 and E.8, multiplication. 3.5 hours.
train task=mul $held_out seed=0

# Figure 2: random output, until nobody has memorised it: how many times slower than addition it is at least. 0.8 hours.
train task=random_output trainer.max_epochs=60 $(seeds 0 4)
# Figures 1 and E.7, multiplication: the missing seeds. 2.6 hours.
train task=mul model=transformer $(seeds 3 4)
train task=mul model=nanogpt $(seeds 3 4)
# Figure 3, addition: VS_v differs between seeds, so five more. 0.7 hours.
train task=add split=vs_v $(seeds 5 9)
# Table 3, addition: three more seeds where five leave the verdict open. 1.1 hours.
train task=add $(seeds 5 7)
train task=add ablation=d_model_32,no_feed_forward $until_95 $(seeds 5 7)
# Figure C.6, addition: plain order, until it is much later than reverse order. The next line continues it. 0.9 hours.
train task=add task.completion_order=plain task.prompt_order=plain trainer.max_epochs=60 $(seeds 0 2)
# Figure C.6, addition: the order of the bits. 4.1 hours.
train task=add task.completion_order=reverse,plain task.prompt_order=reverse,plain trainer.max_epochs=150 $(seeds 0 4)
# Figure E.8, addition: nanoGPT sometimes leaves a bit unlearned. How often? 3.3 hours.
train task=add model=nanogpt split=vs_t,vs_v $(seeds 5 19)
# Figure 3, multiplication: four more seeds, as many as the paper has. 7 hours.
train task=mul split=vs_v,vs_t $(seeds 1 4)
# Figure E.8, multiplication: four more seeds, and fifteen to ask how often a bit stays unlearned. 5 and 18 hours.
train task=mul split=vs_v,vs_t model=nanogpt $(seeds 1 4)
train task=mul split=vs_v,vs_t model=nanogpt $(seeds 5 19)
# Table 3: without attention or positions no network passes its ceiling, which is computed. To confirm it. 3 hours.
train task=add,mul ablation=no_attention,no_positional_encoding trainer.max_epochs=100 $(seeds 0 2)

# As time allows. Table 3, multiplication: the ablations that learn. 12 hours.
train task=mul ablation=one_head,d_model_32,no_feed_forward,squeezed_encoder $until_95 $(seeds 0 4)
# Figure C.6, multiplication: only the prompt in plain order. 2 hours.
train task=mul task.prompt_order=plain trainer.stop_at=0.95 $(seeds 0 4)
# Figure 2, as printed. 8.3 hours.
train task=random_output $(seeds 0 2)

# Not worth their time so far; take away the # to train them.
# Figure C.6, multiplication. 52 hours.
# train task=mul task.completion_order=reverse,plain task.prompt_order=reverse,plain trainer.max_epochs=1500 $(seeds 0 4)
# Figure 2, as the authors' notebook corrects it. 33 hours.
# train task=random_output trainer.max_epochs=4000 $(seeds 0 2)
