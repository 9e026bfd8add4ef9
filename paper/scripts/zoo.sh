#!/usr/bin/env bash
# Train the zoo: networks that compute by known variables (paper/found/appendix.md). Arguments go to every run:
#
#   paper/scripts/zoo.sh runs_dir=zoo
#   timeout 8h paper/scripts/zoo.sh runs_dir=zoo      # stops after 8 hours; the same command continues where it stopped
#   python -m arith_erd.paper.studies.zoo zoo.csv zoo/add-*  # what they learned, and the SHA-256 of their weights
#
# Hours are those of one CPU core (AMD EPYC, OMP_NUM_THREADS=1). The same processor and number of threads give the
# weights of paper/results/zoo.csv bit for bit; elsewhere rounding differs, and training amplifies it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
trap 'exit 143' TERM # once the run in progress has saved

options=("$@")
train() { # OVERRIDES...: one pack; a signal ends the script, a failed run does not
    ${TRAIN:-python train.py -m} "$@" ${options[@]+"${options[@]}"} || [ $? -lt 128 ] || exit 143
}
sum="sum: {site: dec.2, dims: [0, 1]}"
carries="carry: {site: dec.2, dims: [0, 7]}, xor: {site: dec.2, dims: [8, 15]}"
total="total: {site: dec.2, dims: [0, 7]}"
hold() { # VARIABLES OVERRIDES...: networks that hold these variables
    train loss=interchange model.loss.strict=1 "model.loss.variables={$1}" "${@:2}"
}
follow() { # RULE VARIABLES OVERRIDES...: that also continue by a causal model after wrong prefixes
    hold "prefix: {site: answer}, $2" "model.loss.causal_model=$1" "${@:3}"
}

# Five bits. 1.5 hours of nanoGPT, 1.5 of the Transformer.
for model in model=nanogpt "model=transformer model.optimizer.lr=1e-3"; do
    small="task.bits=5 $model model.net.num_layers=3 data.batch_size=32 trainer.max_epochs=100"
    train $small seed=0-4
    hold "$sum" $small seed=0-4
    hold "$carries" $small seed=0-4
done
for rules in "model=nanogpt seed=0-4" "model=transformer model.optimizer.lr=1e-3 seed=0-1"; do
    small="task.bits=5 $rules model.net.num_layers=3 data.batch_size=32"
    no_prefix_epochs=$([[ $rules = *nanogpt* ]] && echo 60 || echo 100)
    follow prefix_carry "$carries" $small trainer.max_epochs=100
    follow erd "$sum" $small trainer.max_epochs=$no_prefix_epochs
    follow lookahead_carry "$carries" $small trainer.max_epochs=$no_prefix_epochs
    follow local_remainder "$total" $small trainer.max_epochs=100
done
# Null networks of `ae.zoo`: so short a training learns the share of ones, and no pair. 19 minutes beside other work.
train task=random_output task.bits=5 model=nanogpt model.net.num_layers=3 data.batch_size=32 trainer.max_epochs=60 seed=0-7
# Seven bits. 6 hours of nanoGPT, 2 of the Transformer.
large="model=nanogpt model.net.num_layers=3 data.batch_size=32 seed=0-4"
train $large trainer.max_epochs=12
hold "$sum" $large trainer.max_epochs=12
hold "$carries" $large trainer.max_epochs=8
follow prefix_carry "$carries" $large trainer.max_epochs=12
follow erd "$sum" $large trainer.max_epochs=12
follow lookahead_carry "$carries" $large trainer.max_epochs=12
follow local_remainder "$total" $large trainer.max_epochs=12
large="model=transformer model.optimizer.lr=1e-3 model.net.num_layers=3 data.batch_size=32 trainer.max_epochs=24 seed=0-1"
hold "$sum" $large
hold "$carries" $large
follow prefix_carry "$carries" $large
follow local_remainder "$total" $large
