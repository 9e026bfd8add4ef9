"""Write ``explorer.html``, a page that runs the networks in the browser, with interventions."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import pandas as pd

from ..catalog.loading import load_handcoded
from ..explorer import export_network, write_page
from ..interp.hooked import Hooked
from ..models.handcoded import is_handcoded_task
from ..plots.panels import Bars
from .probe import IN_FILE, Count, NetworkProbe, as_list


class Explorer(NetworkProbe):
    """Write a page with at most ``most`` replicas, and with the hand-coded networks ``beside`` if they fit the task.

    A row is a network. It has the bits of a weight in the page, 16 or 32, and the accuracy on ``num_examples`` random
    examples, or on all if there are fewer.
    """

    picture = Bars("right", "name", "", title="right answers", xlabel="network", percent=True)
    units: ClassVar[dict[str, str]] = {"right": "accuracy"}

    num_examples: Count = IN_FILE
    beside: Sequence[str] = IN_FILE
    most: Count = IN_FILE

    def __post_init__(self) -> None:
        given, names = {model.name for model in self.models}, as_list(self.beside)
        handcoded = [load_handcoded(name, task=self.task) for name in names if is_handcoded_task(self.task)]
        self.left_out = len(self.models[self.most :])
        self.models = [*self.models[: self.most], *(network for network in handcoded if network.name not in given)]
        # Measure each network once, for rows and page.
        self.export = cache(lambda model: export_network(model, self.num_examples))

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        network = self.export(model)
        yield {"network": network["name"], "weight_bits": network["weight_bits"], "right": network["right"]}

    def files(self) -> dict[str, str]:
        return {"explorer.html": write_page([*map(self.export, self.models)])}

    def notes(self) -> list[str]:
        return [f"{self.left_out} networks left out; increase probe.most to include them"] if self.left_out else []

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        beside = rows["network"].str.startswith("handcoded-")
        return rows.assign(name=rows["network"].where(beside, rows["seed"].map("seed {}".format)))
