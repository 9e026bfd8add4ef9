"""Should OpenMP's threads spin or sleep while they wait? ``python benchmarks/waiting.py --help``.

One process for each way trains the same pack. They take turns, a few steps each, first on a machine with nothing else
to do, then beside processes that never stop. Each turn begins with as many steps that are not timed, in which a process
that adapts finds out what the machine does now. `arith_erd.system.threads` follows from the results.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

POLICIES: dict[str, dict[str, str]] = {
    "adapting": {},  # as a run does
    "default": {"GOMP_SPINCOUNT": "300000"},  # GNU OpenMP's own
    "sleep": {"OMP_WAIT_POLICY": "PASSIVE"},
    **{f"spin {count}": {"GOMP_SPINCOUNT": str(count)} for count in (300, 3000, 30000)},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time training steps with threads that sleep, and that spin.")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each process on an idle machine (default: 10)")
    parser.add_argument("--busy-rounds", type=int, default=2, help="turns of each on a busy one (default: 2)")
    parser.add_argument("--steps", type=int, default=8, help="steps in a turn (default: 8)")
    parser.add_argument("--beside", type=int, default=2, help="processes that never stop (default: 2)")
    parser.add_argument(
        "--ways",
        default=",".join(POLICIES),
        help="of waiting, the first of which others are compared with (default: %(default)s)",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for train.py: model=nanogpt ...")
    options = parser.parse_args()
    if options.rounds < 1 or options.busy_rounds < 1 or options.steps < 1:
        parser.error("--rounds, --busy-rounds, --steps: expected at least 1")
    ways = options.ways.split(",")
    if unknown := sorted(set(ways) - set(POLICIES)):
        parser.error(f"--ways: got {unknown[0]!r}, expected some of {', '.join(POLICIES)}")
    print(f"load {os.getloadavg()[0]:.2f}; milliseconds per step, median of turns of {options.steps} steps", flush=True)
    context = get_context("spawn")
    pipes, processes = {}, []
    for policy in ways:
        pipes[policy], end = context.Pipe()
        arguments = (policy, options.steps, options.overrides, end)
        processes.append(context.Process(target=train, args=arguments, daemon=True))
        processes[-1].start()
        pipes[policy].recv()  # it is warm
    idle = take_turns(pipes, options.rounds)
    report("idle", idle)
    with never_stopping(options.beside):
        report(f"beside {options.beside}", take_turns(pipes, options.busy_rounds))
    for process in processes:
        process.terminate()


def train(policy: str, steps: int, overrides: list[str], pipe: Connection) -> None:
    """Train ``steps`` steps whenever told to, and answer with the milliseconds of one."""
    os.environ |= POLICIES[policy]
    from dataclasses import replace

    from ours import BareLoop, Clock, device_of, examples

    from arith_erd.config.compose import compose
    from arith_erd.system.threads import sleeping_beside_others
    from arith_erd.training.assemble import assemble, make_trainer

    job = compose("train", ["seed=0", *overrides])
    module = assemble(job, device_of(job))
    data = examples(job, steps * job.data.batch_size, 0)
    trainer = make_trainer(replace(job.trainer, max_epochs=1), [Clock()])
    trainer.limit_val_batches = 0
    trainer.fit(module, data)
    loop = BareLoop(trainer, module, data)
    loop.epoch()
    pipe.send("warm")
    while pipe.recv():
        with sleeping_beside_others():
            loop.epoch()
            pipe.send(loop.epoch() / steps * 1e3)


def take_turns(pipes: dict[str, Connection], rounds: int) -> dict[str, list[float]]:
    measured: dict[str, list[float]] = {policy: [] for policy in pipes}
    for number in range(rounds):
        for policy in sorted(pipes, reverse=bool(number % 2)):
            pipes[policy].send(True)
            measured[policy].append(pipes[policy].recv())
    return measured


def report(machine: str, measured: dict[str, list[float]]) -> None:
    first = next(iter(measured))
    for policy, values in measured.items():
        ratio = statistics.median(one / other for one, other in zip(values, measured[first], strict=True))
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"{machine}: {policy:10} {statistics.median(values):7.1f} ({spread}), {ratio:.3f} of {first}", flush=True)


@contextmanager
def never_stopping(count: int) -> Iterator[None]:
    work = f"import os\nwhile os.getppid() == {os.getpid()}: pass"  # not beyond the end of this program
    processes = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
