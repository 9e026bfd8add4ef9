"""Divide seeds into packs: ``seed=0-255`` may be more than a device holds."""

from collections.abc import Callable

Seeds = tuple[int, ...]


def plan_packs(
    seeds: Seeds, limit: int | str, begun: Callable[[Seeds], bool], capacity: Callable[[], int] | None = None
) -> list[Seeds]:
    """The seeds of each pack, at most ``limit`` in one.

    Where the limit is ``auto``, a plan already begun is reused: free memory changes from day to day, and the same
    command must find its runs again. So sizes are powers of two, and the size whose first pack has begun is kept.

    >>> plan_packs((0, 1, 2, 3, 4), 2, begun=lambda seeds: False)
    [(0, 1), (2, 3), (4,)]
    >>> plan_packs((0, 1, 2, 3, 4), "auto", begun=lambda seeds: False, capacity=lambda: 3)
    [(0, 1), (2, 3), (4,)]

    Args:
        seeds: in ascending order.
        limit: a number, or ``auto``.
        begun: whether a pack of these seeds, made for this list, has an epoch behind it.
        capacity: how many replicas the device holds; called only if nothing else decides. None: all of them.
    """
    if limit != "auto":
        return split_evenly(seeds, int(limit))
    if len(seeds) == 1 or begun(seeds):
        return [seeds]
    sizes = [2**power for power in reversed(range((len(seeds) - 1).bit_length()))]  # below the number of seeds
    for size in sizes:
        if begun(seeds[:size]):
            return split_evenly(seeds, size)
    fit = len(seeds) if capacity is None else capacity()
    return [seeds] if fit >= len(seeds) else split_evenly(seeds, next((size for size in sizes if size <= fit), 1))


def split_evenly(seeds: Seeds, size: int) -> list[Seeds]:
    """Consecutive groups of ``size``; the last may be smaller."""
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]
