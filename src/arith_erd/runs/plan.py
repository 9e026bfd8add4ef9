"""Which packs the seeds of a configuration are trained in: ``seed=0-255`` may be more than a device holds."""

import contextlib
from collections.abc import Callable

from ..errors import UserError
from ..seeds import format_seeds, parse_seeds
from .directory import Config, Run


def packs(config: Config, fitting: Callable[[Config], int] | None = None) -> list[Config]:
    """One configuration for each pack, at most ``pack.max_replicas`` seeds in each.

    Where that is ``auto``, what has begun decides first: free memory changes from one day to the next, and the same
    command must find its runs again. So sizes are powers of two, each pack's ``config.yaml`` says of which seeds it is
    a part, and a split whose first pack has begun is kept.

    Args:
        fitting: how many replicas the device holds; asked only where nothing else decides. Without it: all of them.
    """
    seeds = parse_seeds(config["seed"])
    limit = config["pack"]["max_replicas"]
    if limit != "auto":
        return _split(config, limit)
    if len(seeds) == 1 or _has_begun(config):
        return [config]
    sizes = [2**power for power in reversed(range((len(seeds) - 1).bit_length()))]  # below the number of seeds
    for size in sizes:
        if _has_begun(_split(config, size)[0]):
            return _split(config, size)
    fit = len(seeds) if fitting is None else fitting(config)
    return [config] if fit >= len(seeds) else _split(config, next((size for size in sizes if size <= fit), 1))


def _split(config: Config, size: int) -> list[Config]:
    seeds = parse_seeds(config["seed"])
    if len(seeds) <= size:
        return [config]
    part = config | {"pack": config["pack"] | {"part_of": format_seeds(seeds)}}
    return [part | {"seed": format_seeds(seeds[i : i + size])} for i in range(0, len(seeds), size)]


def _has_begun(config: Config) -> bool:
    """Whether a pack, as part of the same seeds, has an epoch behind it."""
    run = Run.of(config)
    if not (run.finished or run.checkpoint.is_file()):
        return False
    with contextlib.suppress(UserError, AttributeError):  # a configuration that cannot be read is refused later
        return bool(run.config().get("pack", {}).get("part_of") == config["pack"].get("part_of"))
    return False
