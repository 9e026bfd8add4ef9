"""Interchange-intervention training: a network learns the task, with given variables computed at given sites."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..bundled import load_option
from ..config.causal_models import CausalModelSpec, build_causal_model
from ..digits import Array
from ..errors import bad_value, unknown_name
from ..interp.causal_model import CausalModel, require_distinguishable
from ..interp.hooked import Hooked
from ..interp.hooks import cache_outputs, edit_outputs, record_outputs, replay_outputs
from ..interp.interventions import Replace
from ..interp.sites import layers
from ..models.network import Network, shift_right
from ..tasks import Examples, Task
from .cross_entropy import CrossEntropy, meta_tokens

OPTIONS = load_option("loss", "interchange")
ANSWER = "answer"
EXAMPLE = "{site: dec.1, dims: [0, 15]}"
MAX_TABLE_BYTES = 2**31  # bytes of the table of answers after each value of a variable


class InterchangeTraining(CrossEntropy):
    """Cross-entropy, plus cross-entropy to a causal model's answers after interchanges (Geiger et al., 2022).

    In an interchange an example takes a variable's coordinates from its source, the example before it in the batch. The
    order of a batch is random. If the variable has a column for each digit, example i takes position ``i % m``, and
    only the token there is scored. If the variable is one number, the example takes all answer positions, and all
    tokens are scored. With 3 + 5 and source 1 + 4, the carry of 1 + 4 at bit 1 makes bit 1 of the answer 1.

    A variable at the site ``answer`` is the number that the answer's tokens spell. Its interchange gives the decoder
    the source's right answer as prefix, which is wrong for this example. The causal model predicts how the answer
    should continue (`interp.algorithms`).

    Args:
        variables: variable of the causal model -> ``{site: dec.1, dims: [0, 15]}``, a layer of the decoder and the
            first and last coordinates of its output; or ``{site: answer}``.
        weight: factor of the mean cross-entropy over the variables.
        strict: weight of the strictness loss (Gupta et al., 2024): an example takes a site's coordinates that belong to
            no variable, at all positions, and its answer must not change.
        causal_model: your hypothesis (`config.causal_models.build_causal_model`); None for the task's own.
    """

    compiles = "layers"

    def __init__(
        self,
        variables: Mapping[str, Any] | None = OPTIONS["variables"],
        weight: float = OPTIONS["weight"],
        strict: float = OPTIONS["strict"],
        label_smoothing: float = OPTIONS["label_smoothing"],
        causal_model: CausalModelSpec = OPTIONS["causal_model"],
    ) -> None:
        super().__init__(label_smoothing)
        if not isinstance(variables, Mapping) or not variables:
            raise bad_value("model.loss.variables", variables, f"at least one variable, such as {{carry: {EXAMPLE}}}")
        if reserved := sorted({"train", "val"} & {*variables}):  # splits, in the same column of tokens.csv
            raise bad_value("model.loss.variables", reserved[0], "another name than train and val")
        self.variables = {name: _parse_site_and_dims(name, entry) for name, entry in variables.items()}
        self.weight, self.strict, self.causal_model_spec = weight, strict, causal_model
        self.has_columns: list[bool] = []

    def prepare(self, network: Network, task: Task, examples: Examples) -> Array:
        super().prepare(network, task, examples)
        self.make_tables(task, examples)
        self.check_dims(network, *meta_tokens(examples))
        return np.arange(len(examples))[:, None]  # rows of the tables

    def make_tables(self, task: Task, examples: Examples) -> None:
        """Store each variable's value in every example, and the answers after it is set to each possible value."""
        self.causal_model, self.task = build_causal_model(task, self.causal_model_spec, "model.loss.causal_model"), task
        model, self.has_columns = self.causal_model, []
        model.require_variables(self.variables, "model.loss.variables")
        mapped = [name for name, (site, _) in self.variables.items() if site != ANSWER]
        require_distinguishable(model, mapped, "model.loss.variables")
        values = model.values(examples)
        for number, name in enumerate(self.variables):
            value = values[name]
            if self.variables[name][0] == ANSWER and not np.array_equal(value, examples.answer):
                raise bad_value("model.loss.variables", name, f"the number of the right answer, for the site {ANSWER}")
            if value.shape[1:] not in ((), (task.width,)) or value.min() < 0:
                accepted = "a variable with values from 0, one for each example or for each digit of its answer"
                raise bad_value("model.loss.variables", name, accepted)
            self.has_columns.append(value.ndim == 2)
            by_digit = np.broadcast_to(value.reshape(len(value), -1), (len(value), task.width))
            by_token = torch.from_numpy(by_digit[:, task.answer_positions])
            self.register_buffer(f"values_{number}", by_token, persistent=False)  # (N, m)
            if (size := len(examples) * (int(value.max()) + 1) * task.width) > MAX_TABLE_BYTES:
                accepted = f"a variable with fewer values; the answers for all take {size / 2**30:.1f} GiB"
                raise bad_value("model.loss.variables", name, accepted)
            table = torch.from_numpy(_label_table(model, examples, value, name))
            self.register_buffer(f"labels_{number}", table, persistent=False)  # (N, values, m)

    def check_dims(self, network: Network, prompt: Tensor, completion: Tensor) -> None:
        """Raise a `UserError` unless each variable has its own coordinates at a layer of the decoder."""
        decoder_layers = layers(network.sites(), "dec")
        with cache_outputs(network.sites(), decoder_layers) as cache:
            network(prompt, shift_right(completion))
        free_dims = {site: {*range(x.shape[2])} for site, x in cache.items()}  # coordinates that no variable has
        for name, (site, dims) in self.variables.items():
            key = f"model.loss.variables.{name}"
            if site not in (*decoder_layers, ANSWER):
                raise unknown_name(f"{key}.site", site, (*decoder_layers, ANSWER))
            if not free_dims.get(site, set()).issuperset(dims):
                accepted = f"coordinates from 0 to {cache[site].shape[2] - 1} at {site} that no other variable has"
                raise bad_value(f"{key}.dims", f"[{dims[0]}, {dims[-1]}]", accepted)
            if dims:
                free_dims[site] -= {*dims}
        if self.strict and (full := [site for site, rest in free_dims.items() if not rest]):
            raise bad_value("model.loss.strict", self.strict, f"coordinates of {full[0]} that no variable has, or 0")

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        assert targets is not None
        sites_and_dims, answer_in, sites = [*self.variables.values()], shift_right(completion), network.sites()
        with record_outputs(sites, layers(sites)) as plain:  # by layer, in the order in which they run
            total = self.loss_of_logits(network(prompt, answer_in), completion)
        mapped_sites = dict.fromkeys(site for site, dims in sites_and_dims if dims)
        outputs = {site: plain[site][0] for site in mapped_sites}
        source = {x: (y if isinstance(y, Tensor) else y[0]).roll(1, dims=0) for x, y in outputs.items()}  # (B, T, F)

        def run(site: str, dims: Sequence[int], at: Tensor, others: bool = False) -> Tensor:
            """Logits (B, m, V) with ``dims``, or all ``others``, from the source, ``at`` positions (m,) or (B, m).

            Layers up to the site do not run again, unless they run more than once. Each pass has the step's dropout.
            """
            ran = [*plain]
            before = layers(ran, "enc") if site == ANSWER else ran[: ran.index(site) + 1]
            unchanged = {sites[layer]: plain[layer][0] for layer in before if len(plain[layer]) == 1}

            def change(x: Tensor) -> Tensor:  # (B, T, F); the answer's positions are the last
                of_dims = torch.isin(torch.arange(x.shape[2]), torch.tensor(dims), invert=others).to(x.device)
                mask = F.pad(at, (x.shape[1] - at.shape[-1], 0))[..., None] & of_dims
                return torch.where(mask, source[site], x)

            with replay_outputs(unchanged):
                if site == ANSWER:
                    return network(prompt, answer_in.roll(1, dims=0))
                with edit_outputs(sites, {site: change}):
                    return network(prompt, answer_in)

        batch, positions = (torch.arange(n, device=completion.device) for n in completion.shape)
        own_position, row = batch % completion.shape[1], targets[:, 0].long()
        all_positions = torch.ones_like(positions, dtype=torch.bool)
        for number, ((site, dims), has_columns) in enumerate(zip(sites_and_dims, self.has_columns, strict=True)):
            predicted = run(site, dims, positions == own_position[:, None] if has_columns else all_positions)
            value = getattr(self, f"values_{number}")[row.roll(1)]  # (B, m), of the sources
            label = getattr(self, f"labels_{number}")[row[:, None], value, positions].long()  # (B, m)
            if has_columns:
                predicted, label = predicted[batch, own_position, None], label[batch, own_position, None]
            loss = F.cross_entropy(predicted.flatten(0, 1), label.flatten(), reduction="none").mean()
            total = total + self.weight / len(sites_and_dims) * loss
        for site in mapped_sites if self.strict else ():
            mapped = [dim for other, dims in sites_and_dims if other == site for dim in dims]
            logits = run(site, mapped, all_positions, others=True)
            loss = F.cross_entropy(logits.flatten(0, 1), completion.flatten(), reduction="none")
            total = total + self.strict / len(mapped_sites) * loss.mean()
        return total

    def report(self, network: Callable[[], Network], held_out: Array) -> dict[str, list[float]]:
        """Variable -> accuracy of each answer token after an interchange, on up to 512 held-out examples."""
        rows = np.random.default_rng(0).permutation(held_out)[:512]
        model, task, causal = Hooked(network(), task=self.task), self.task, self.causal_model
        base, sources = causal.examples[rows], causal.examples[np.roll(rows, 1)]
        prompt, answer_in = model.inputs(base)
        accuracies = dict[str, list[float]]()
        for (name, (site, dims)), has_columns in zip(self.variables.items(), self.has_columns, strict=True):
            if site == ANSWER:
                logits = model.run((prompt, answer_in.roll(1, dims=0)))
            else:
                x = model.run_with_cache(base, site)[1][site]
                run = model.resume_from(site, base)
                x[..., dims] = x[..., dims].roll(1, dims=0)
                if has_columns:
                    logits = torch.stack([run(Replace(site, t, x))[:, t] for t in range(task.width)], dim=1)
                else:
                    logits = run(Replace(site, None, x))
            digits = (causal.interchange_by_digit if has_columns else causal.interchange)(base, sources, name)
            right = logits.argmax(-1).cpu().numpy() == task.to_tokens(digits)
            accuracies[name] = right.mean(axis=0).tolist()
        return accuracies


def _parse_site_and_dims(name: str, entry: Any) -> tuple[str, tuple[int, ...]]:
    """The site and the coordinates of a variable, from its entry in the configuration."""
    place = entry if isinstance(entry, Mapping) else {}
    if place == {"site": ANSWER}:
        return ANSWER, ()
    dims = place.get("dims")
    ends = dims if isinstance(dims, Sequence) and all(type(end) is int for end in dims) else ()
    if set(place) != {"site", "dims"} or len(ends) != 2 or not 0 <= ends[0] <= ends[1]:
        raise bad_value(f"model.loss.variables.{name}", entry, f"{EXAMPLE}: dims from the first to the last")
    return str(place["site"]), tuple(range(ends[0], ends[1] + 1))


def _label_table(model: CausalModel, examples: Examples, value: Array, name: str) -> Array:
    """Tokens (N, values, m) of the answers after the variable, or the token's column of it, is set to each value."""

    def digits(new: int) -> Array:
        if value.ndim == 1:
            return model.answers(model.values(examples, {name: np.full_like(value, new)}))
        columns = np.arange(value.shape[1])
        changed = (model.values(examples, {name: np.where(columns == t, new, value)}) for t in columns)
        return np.stack([model.answers(values)[:, t] for t, values in enumerate(changed)], axis=1)

    tokens = [model.task.to_tokens(digits(new)).astype(np.int8) for new in range(int(value.max()) + 1)]
    return np.stack(tokens, axis=1)
