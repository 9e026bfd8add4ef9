"""Where Hydra finds our sweeper: it accepts plugins only from the namespace ``hydra_plugins``."""

from hydra.core.config_store import ConfigStore

from arith_erd.launch import sweep


class CheckedSweeper(sweep.CheckedSweeper):
    """See `arith_erd.launch.sweep.CheckedSweeper`."""


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="checked",
    node={"_target_": f"{__name__}.CheckedSweeper", "params": None},
    provider="arith_erd",
)
