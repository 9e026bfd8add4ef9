"""The part of ``--help`` that lists groups and their options, read from the configuration folders."""

import textwrap

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, OmegaConf

from ..config.compose import CONF

WIDTH = 80


def options(*, _root_: DictConfig) -> str:
    """A line for each group that the program has: its name and its options, including those of ``--config-dir``.

    Args:
        _root_: the composed configuration, passed by OmegaConf.
    """
    loader = GlobalHydra.instance().config_loader()
    chosen = list(_root_.hydra.runtime.choices)[::-1]  # in the order of the defaults list, which Hydra reverses
    groups = [group for group in chosen if not group.startswith("hydra/")]
    listed = {group: loader.get_group_options(group, ObjectType.CONFIG) for group in groups}
    # Of the launchers only ours: Hydra and its plugins bring others, which have no defaults for our runs.
    listed["hydra/launcher"] = sorted(path.stem for path in (CONF / "hydra" / "launcher").glob("*.yaml"))
    indent = max(map(len, listed)) + 4
    return "\n".join(
        textwrap.fill(
            "  ".join(names),
            WIDTH,
            initial_indent=f"  {group}".ljust(indent),
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
        for group, names in listed.items()
        if names
    )


def register() -> None:
    """Make ``${options:}`` available to the help texts in ``conf/``."""
    OmegaConf.register_new_resolver("options", options, replace=True)
