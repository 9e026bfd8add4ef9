"""The runs of a list: a file of ``conf/queue/``, in order of value."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException

from ..config.compose import CONF, compose, hydra_over_conf, refusal
from ..config.job import Job
from ..errors import UserError, bad_value, excerpt, first_line
from ..runs import Run
from ..seeds import format_seeds
from ..system.files import read_text
from .sweep import expand

WORD = re.compile(r"""(?:[^\s'"\[]|'[^']*'|"[^"]*"|\[[^\]]*\]|['"\[])+""")
"""An override in a line: quotes, which Hydra reads, and brackets may have spaces inside."""


@dataclass(frozen=True)
class Entry:
    """One run of the list."""

    words: tuple[str, ...]
    """Of the list: what sets the run apart from others. The last one is ``seed=``."""
    extra: tuple[str, ...]
    """Overrides that every run of the list gets."""
    job: Job

    @property
    def overrides(self) -> tuple[str, ...]:
        """Those that its training gets. Later ones win, and a part of the seeds is the run's own."""
        return (*self.words[:-1], *self.extra, self.words[-1])

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.job.runs())

    @property
    def epochs_done(self) -> int:
        """The fewest of its packs."""
        return min(epochs_done(run) for run in self.job.runs())

    @property
    def epochs_left(self) -> int:
        """Summed over its seeds."""
        most = self.job.trainer.max_epochs
        return sum(len(pack.seeds) * (most - epochs_done(pack.run)) for pack in self.job.packs())

    @property
    def error(self) -> Path | None:
        """The file that says why its training failed, if there is one."""
        return next((run.error for run in self.job.runs() if run.error.exists()), None)

    @property
    def title(self) -> str:
        """Its words, with the values that win."""
        told = dict(word.partition("=")[::2] for word in self.overrides)
        return " ".join(f"{key}={told[key]}" for key in (word.partition("=")[0] for word in self.words))


def epochs_done(run: Run) -> int:
    """The last epoch that a run has a row of."""
    return max((row["epoch"] for row in run.metrics()), default=0)


def read_queue(name: str, pack: int | None, extra: Sequence[str] = ()) -> list[Entry]:
    """The runs of ``conf/queue/{name}.yaml`` in order, each once.

    Args:
        name: of the list.
        pack: seeds in a run; None for all that an entry names.
        extra: overrides that every run is given too.

    Raises:
        UserError: if there is no such list, its file is not a list, or one of its runs is refused.
    """
    known = sorted(path.stem for path in (CONF / "queue").glob("*.yaml"))
    if name not in known:
        raise bad_value("queue", name, " or ".join(known))
    entries: dict[Path, Entry] = {}
    for words in read_list(CONF / "queue" / f"{name}.yaml"):
        whole = compose("train", [*words, *extra])
        if whole.overwrite:
            raise bad_value("overwrite", "true", "false: a queue skips what is finished; train.py trains it anew")
        for seeds in batched(whole.seeds, pack):
            job = whole.with_seeds(seeds)
            title = (*(word for word in words if not word.startswith("seed=")), f"seed={format_seeds(seeds)}")
            entries.setdefault(job.run.path, Entry(title, tuple(extra), job))
    return list(entries.values())


def read_list(path: Path) -> list[list[str]]:
    """The overrides of each run of a list: a line ``task=add,mul seed=0`` is two of them, the first key slowest.

    Raises:
        UserError: if the file is no list of lines, or a line is not what ``train.py -m`` takes.
    """
    line = None
    try:
        lines = yaml.safe_load(read_text(path))
        if not isinstance(lines, list) or not lines or not all(isinstance(line, str) for line in lines):
            raise TypeError(excerpt(str(lines)))
        found = []
        with hydra_over_conf():
            loader = GlobalHydra.instance().config_loader()
            for line in lines:
                found += expand(loader, {}, WORD.findall(line))
        return found
    except (yaml.YAMLError, TypeError, ValueError, HydraException) as error:
        why = str(refusal("train", error, ())) if isinstance(error, HydraException) else first_line(error)
        what = why if line is None else f"{line}: {why}"
        raise UserError(f"{path}: {what}; expected a list of runs, each a line as - task=add,mul seed=0") from error


def batched(seeds: tuple[int, ...], pack: int | None) -> list[tuple[int, ...]]:
    """``(0, 1, 2)`` in packs of two: ``[(0, 1), (2,)]``."""
    size = pack or len(seeds)
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]
