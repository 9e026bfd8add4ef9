"""Which algorithm does each method name, and how often is it right?

    python -m arith_erd.paper.studies.methods paper/results/methods.csv runs/add-random-*-none-bits5-*

The networks are those of `arith_erd.zoo`: written by hand, trained ones (`zoo.py` has the commands), and null networks.
Each function of `METHODS` gives the method's evidence for the sum and for carries, as outcomes per example where it has
such; the score is their difference. The sites are the residual stream of the decoder after attention to the prompt and
after each layer, except for the last layer; `middle` is the decoder's middle layer, as in the paper. Thresholds and
bars: `catalog.scoring.name_algorithms`. Stored measurements are kept if they have both terms, and names are given
anew. `METHODS`, and what they find in null networks (`preregistrations/nulls.md`), were committed before anything was
counted.
"""

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

import arith_erd as ae
from arith_erd.catalog.scoring import (
    LABELS,
    SCORE_COLUMNS,
    Method,
    bits_of,
    count_answers,
    format_share,
    name_algorithms,
    name_by_threshold,
    score_network,
)
from arith_erd.digits import ONE
from arith_erd.errors import UserError
from arith_erd.interp.algorithms import algorithm_label
from arith_erd.interp.das import DASConfig
from arith_erd.interp.das_controls import ControlledDAS
from arith_erd.interp.erasure import probe_predictions, whiten
from arith_erd.interp.interchange_accuracy import PairEvaluation
from arith_erd.interp.sites import enclosing_layer, layers, residual_stream
from arith_erd.mechanism.signature import expected_signatures, measure_signature
from arith_erd.mechanism.verdict import classify
from arith_erd.plots.style import GREY, heat_map, save_png, set_panel_title, subplots
from arith_erd.probes.patching import change_digit
from arith_erd.probes.probe import select_sites
from arith_erd.system.cli_errors import one_line_errors
from arith_erd.system.isolation import own_generator

from ..formats import markdown

DAS_CONFIG = DASConfig(num_train=128, num_validation=64, num_test=256, steps=20, batch_size=64)
SEARCHED = ("sum", "carry")
NON_LINEAR_STEPS = 100
MAX_LEARNED_RANK = 4
MIN_ACCURACY = dict.fromkeys(("DAS, rank 1", "DAS, rank 2", "DAS, learned rank", "DAS, non-linear", "PLOT"), 0.75)
MAX_AXES = 32  # of a site, by variance, between which PLOT chooses
NUM_AXES = (1, 2, 4, 8)  # so many of them it may take
EPSILON = 0.03  # of its transport, in mean costs
ROUNDS = 200  # in which the transport's rows and columns are normalised
COLUMNS = [*SCORE_COLUMNS[:6], "named", "right", *SCORE_COLUMNS[6:11], "flips", *SCORE_COLUMNS[11:]]
PREDICTIONS = Path(__file__).parents[1] / "preregistrations" / "nulls.md"
DIFFERENCES = ("distances", "probes", "DAS, rank 1", "DAS, rank 2", "steering", "prefixes", "profile")
"""Methods whose score is the evidence for the sum minus that for carries, so that 0 has a meaning."""


def scored_sites(model: ae.Hooked) -> list[str]:
    decoder = residual_stream(model.sites, "dec")
    last = layers(decoder)[-1]
    return [s for s in decoder if enclosing_layer(decoder, s) != last and f"{s}_cross" not in decoder]


def score_distances(model: ae.Hooked) -> ae.Evidence:
    """The paper's section 4.5: does the decoder's middle follow the value of the output more than its tokens?"""
    rows = ae.probe("distance_correlation", model).rows
    rows = rows.query("stack == 'dec' and level == 'out' and method == 'pearson'")
    table = rows.pivot_table(index="layer", columns="space", values="correlation")
    best = (table["value"] - table["token"]).iloc[:-1].fillna(-np.inf).argmax()
    return ae.Evidence(*(float(table[space].iloc[best]) for space in ("value", "token")))


def score_erasure(model: ae.Hooked, method: str) -> ae.Evidence:
    """The paper's appendix D: right answers after the erasure of a random concept, and after that of the value."""
    row = run_erasures(model).loc[method]
    every = np.arange(model.task.size)
    shares = row["control_signs_mean"], row["seq_acc_after"]
    return ae.Evidence(*(np.clip(share * len(every) - every, 0, 1) for share in shares))


@lru_cache(maxsize=1)
def run_erasures(model: ae.Hooked) -> pd.DataFrame:
    """Run both methods at once. Their time counts as that of INLP."""
    (middle,) = select_sites([model], None)
    options = {"site": middle, "concept": "value", "method": ["inlp", "leace"], "num_controls": 10}
    return ae.probe("amnesic", model, **options).rows.set_index("method")


def score_probes(model: ae.Hooked) -> ae.Evidence:
    """R² of linear probes at a position t: of the sum, and the mean of carry and xor; each at its best site."""
    examples, by_site = model.task.examples().sample(1024, seed=0), []
    values = ae.CausalModel(model.task).values(examples)
    _, found = model.run_with_cache(examples, scored_sites(model))
    for x in found.values():
        shares = []
        for t in range(1, model.task.width - 1):
            z = np.stack([values["sum"], values["carry"][:, t], values["xor"][:, t]], axis=1).astype(float)
            error = z - probe_predictions(whiten(x[:, t]), torch.as_tensor(z)).numpy()
            shares.append(1 - (error - error.mean(0)) ** 2 / z.var(0))  # (n, 3): their mean is R²
        by_site.append(np.mean(shares, axis=0))
    best = np.argmax(np.mean(by_site, axis=1), axis=0)
    of_sum, carry, xor = (by_site[site][:, i] for i, site in enumerate(best))
    return ae.Evidence(of_sum, (carry + xor) / 2)


def score_patching(model: ae.Hooked) -> float:
    """Answer bits that no single prompt position restores: after a sum is formed, every position holds it.

    All positions of an example agree where a sum lies at the edge of a digit, so 256 examples would move it by .2.
    """
    rows = ae.probe("patching", model, site=patched_site(model), num_examples=2048).rows
    rows = rows[rows["position"].isin(model.task.prompt_names)]
    total = rows["n"].sum() / rows["position"].nunique()
    return float(1 - (rows["flipped"].fillna(0) * rows["n"]).sum() / total)


def patched_site(model: ae.Hooked) -> str:
    """The end of the encoder, or the middle of a network without one."""
    return (layers(model.sites, "enc") or select_sites([model], None))[-1]


def score_attribution(model: ae.Hooked) -> float:
    """As `score_patching`, but each patch is estimated: gradient times difference (Nanda, 2023).

    An answer counts as restored if its logit difference in the corrupted run, plus the estimated effect, is above zero.
    """
    task, clean = model.task, model.task.examples().sample(256, 0)
    corrupted = change_digit(task, clean, np.random.default_rng([0, 1]))
    effects, before = attributed_effects(model, clean, corrupted, patched_site(model))
    differ = torch.as_tensor(clean.completion != corrupted.completion)  # (N, m)
    restored = (before + effects > 0) & differ  # (P, N, m)
    return float(1 - restored.sum() / differ.sum())


def attributed_effects(
    model: ae.Hooked, clean: ae.Examples, corrupted: ae.Examples, site: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimated changes (P, N, m) of logit differences by patching each prompt position, and the differences (N, m)."""
    names = model.task.prompt_names
    values, sources = (
        model.run_with_cache(x, [site], include_prompt=True)[1][site][:, : len(names)] for x in (corrupted, clean)
    )
    values.requires_grad_(True)
    logits = model.run(corrupted, [ae.Replace(site, name, values[:, i]) for i, name in enumerate(names)])
    ends = [logits.gather(-1, torch.as_tensor(x.completion)[..., None])[..., 0] for x in (clean, corrupted)]
    before = ends[0] - ends[1]  # (N, m)
    gradients = [torch.autograd.grad(part.sum(), values, retain_graph=True)[0] for part in before.unbind(1)]
    effects = [(gradient * (sources - values)).sum(-1).T for gradient in gradients]  # m of (P, N)
    return torch.stack(effects, dim=-1).detach(), before.detach()


def score_cka(model: ae.Hooked) -> ae.Evidence:
    """Linear CKA (Kornblith et al., 2019) of the answer's activations with the sum, and with all carries and xors."""
    examples = model.task.examples().sample(1024, seed=0)
    values = ae.CausalModel(model.task).values(examples)
    sums, carries = values["sum"][:, None], np.concatenate([values["carry"], values["xor"]], axis=1)
    activations = [x.flatten(1).numpy() for x in model.run_with_cache(examples, scored_sites(model))[1].values()]
    return ae.Evidence(*(max(linear_cka(x, z) for x in activations) for z in (sums, carries)))


def linear_cka(x: np.ndarray, z: np.ndarray) -> float:
    """Of rows x (N, d) and z (N, k): 1 if their inner products agree up to scale, 0 if all covariances are zero."""
    x, z = (part.astype(float) - part.mean(axis=0) for part in (x, z))
    scale = np.linalg.norm(x.T @ x) * np.linalg.norm(z.T @ z)
    return float(np.linalg.norm(x.T @ z) ** 2 / scale) if scale else 0.0


def score_attention(model: ae.Hooked) -> float:
    """How little the answer's sharpest head at each position looks at one operand bit: a sum needs them all."""
    rows, task = ae.probe("attention", model, num_examples=256).rows, model.task
    operands = [name for name in task.prompt_names if name != task.operator]
    rows = rows[rows["query"].isin(task.answer_names) & rows["key"].isin(operands)]
    return float(1 - rows.groupby("query")["weight"].max().mean())


LinearSearch = tuple[ControlledDAS, ae.Subspace]  # at a site, and what was found there
Search = LinearSearch | tuple[ControlledDAS, ae.Features]


def score_search(model: ae.Hooked, find: Callable[[ae.Hooked, str], Search]) -> ae.Evidence:
    """Interchange accuracy of the sum at all positions, and of a middle bit's carry, each in the space that is found.

    Outcomes (n,) on pairs with other operands, then accuracies on the pairs that the search learned from.
    """
    outcomes, accuracies = [], []
    for variable in SEARCHED:
        search, space = find(model, variable)
        train, _, test = search.sample_pairs(variable)
        outcomes.append(balanced_outcomes(search.evaluation(test, variable), space))
        accuracies.append(search.evaluation(train, variable).accuracy(space))
    return ae.Evidence(*outcomes, *accuracies)


def balanced_outcomes(evaluation: PairEvaluation, space: ae.Subspace | ae.Features | None) -> np.ndarray:
    """A weighted count of each pair's right tokens (n,). Up to rounding, its mean is `PairEvaluation.accuracy`."""
    right = (evaluation.tokens(space) == evaluation.expected).double()
    should_change = (evaluation.expected != evaluation.base_tokens).double()
    changed, kept = ((right * group).sum(1) * len(right) / group.sum() for group in (should_change, 1 - should_change))
    return (changed if should_change.all() else (changed + kept) / 2).numpy()


@lru_cache(maxsize=len(SEARCHED))
def searches_at_sites(model: ae.Hooked, variable: str) -> list[ControlledDAS]:
    """A search at each site where activations vary."""
    adder, at = ae.CausalModel(model.task), model.task.width // 2 if variable == "carry" else None
    searches = [ControlledDAS(model, adder, site, at, DAS_CONFIG) for site in scored_sites(model)]
    return [search for search in searches if search.whitened.rank]


@lru_cache(maxsize=2 * len(SEARCHED))  # ranks 1 and 2
def find_by_das(model: ae.Hooked, variable: str, *, rank: int) -> LinearSearch:
    """DAS at each site. If activations vary along fewer directions everywhere, their number is the rank."""
    searches = searches_at_sites(model, variable)
    rank = min(rank, max(search.whitened.rank for search in searches))
    pairs = ((search, search.sample_pairs(variable)) for search in searches if search.whitened.rank >= rank)
    found = [(search, search.fit(train, validation, variable, rank)) for search, (train, validation, _) in pairs]
    return best_search(found, variable)


def best_search(found: Sequence[LinearSearch], variable: str) -> LinearSearch:
    """The one whose accuracy on validation pairs is highest."""

    def accuracy(candidate: LinearSearch) -> float:
        search, space = candidate
        return float(np.nan_to_num(search.evaluation(search.sample_pairs(variable)[1], variable).accuracy(space)))

    return max(found, key=accuracy)


def find_by_learned_rank(model: ae.Hooked, variable: str) -> Search:
    """DAS with the smallest rank whose accuracy on validation pairs is within .02 of the best up to four."""
    search, _ = find_by_das(model, variable, rank=1)
    found = search.fit_ranks(variable, range(1, MAX_LEARNED_RANK + 1))
    return search, found.subspaces[found.chosen]


def find_by_non_linear_das(model: ae.Hooked, variable: str) -> Search:
    """DAS among features of four coupling layers, from the best direction (Sutter et al., 2507.08802).

    What has been fitted is chosen on its own pairs, as in `ae.fit_das`, so that the gap shows how much they say.
    """
    search, direction = find_by_das(model, variable, rank=1)
    with own_generator(0):
        flow = ae.CouplingLayers(len(direction.directions), directions=direction.directions)
    longer = replace(search, config=replace(DAS_CONFIG, steps=NON_LINEAR_STEPS))
    return search, longer.fit_features(search.sample_pairs(variable)[0], variable, 1, flow)


def find_by_plot(model: ae.Hooked, variable: str) -> Search:
    """PLOT (2605.06979): transport from variables to principal axes, by what an interchange of each does to the output.

    At each site the axes with the largest shares of the variable are interchanged together. The site, and how many axes
    to take, are those best on validation pairs. The paper's strengths, which scale an interchange, are left out.
    """
    names, searches = [*ae.CausalModel(model.task).variables], searches_at_sites(model, variable)
    train = searches[0].sample_pairs(variable)[0]
    answers = [searches[0].evaluation(train, name) for name in names]
    abstract = [((x.expected == ONE).float() - (x.base_tokens == ONE).float()).flatten() for x in answers]
    axes = [search.whitened.axes[:, :MAX_AXES].float() for search in searches]
    effects = [axis_effects(x.evaluation(train, variable), own) for x, own in zip(searches, axes, strict=True)]
    kinds, index = torch.stack(abstract).unique(dim=0, return_inverse=True)  # some variables do the same
    shares = transport(torch.cdist(kinds, torch.cat(effects)) ** 2)[index[names.index(variable)]]
    by_site = zip(searches, axes, shares.split([len(part) for part in effects]), strict=True)
    found = [
        (search, ae.Subspace(own[:, share.argsort(descending=True)[:k]]))
        for search, own, share in by_site
        for k in NUM_AXES
    ]
    return best_search(found, variable)


@torch.no_grad()
def axis_effects(evaluation: PairEvaluation, axes: torch.Tensor) -> torch.Tensor:
    """How an interchange of each axis (d, r) changes the probabilities of a ONE at j positions of n pairs: (r, n j)."""
    before = evaluation.forward()[:, evaluation.scored_positions]
    after = (evaluation.logits(ae.Subspace(axis[:, None])) for axis in axes.T)
    return torch.stack([(x.softmax(-1) - before.softmax(-1))[..., ONE].flatten() for x in after])


def transport(costs: torch.Tensor) -> torch.Tensor:
    """Entropic optimal transport between variables (k) and axes (n) of equal masses: shares (k, n) of each variable."""
    scaled = -costs / (EPSILON * costs.mean())
    for _ in range(ROUNDS):
        scaled = scaled.log_softmax(dim=0)
        scaled = scaled.log_softmax(dim=1)
    return scaled.exp()


def score_steering(model: ae.Hooked) -> ae.Evidence:
    """How well bits follow a shifted sum, and how well they follow an inverted carry, each at its best site."""
    found = measure_signature(model, 64, 128).components
    sums = np.fmax(found["value"], found["value_of_remainder"])
    return ae.Evidence(float(np.nanmean(sums)), float(np.nanmean(found["carry"])))


def score_prefixes(model: ae.Hooked) -> ae.Evidence:
    """After random prefixes, answers that ignore them, and those that take the carry from the last token."""
    found = measure_signature(model, 256, 16).components
    return ae.Evidence(*(float(np.nanmean(found[name])) for name in ("erd_of_all", "prefix_carry_of_all")))


def score_profile(model: ae.Hooked) -> ae.Evidence:
    """`probe=mechanism`: minus the distance to the nearest algorithm by a sum, and by carries."""
    classification = classify(measure_signature(model, 128, 128), cached_signatures(model.task))
    every = classification.distances | classification.post_hoc
    of_labels = ([every[name] for name in every if algorithm_label(name) == label] for label in LABELS)
    return ae.Evidence(*(-float(np.nanmin(distances)) for distances in of_labels))


cached_signatures = cache(expected_signatures)


METHODS: dict[str, Method] = {
    "distances": score_distances,
    "INLP": partial(score_erasure, method="inlp"),
    "LEACE": partial(score_erasure, method="leace"),
    "probes": score_probes,
    "patching": score_patching,
    "attention": score_attention,
    "DAS, rank 1": partial(score_search, find=partial(find_by_das, rank=1)),
    "DAS, rank 2": partial(score_search, find=partial(find_by_das, rank=2)),
    "steering": score_steering,
    "prefixes": score_prefixes,
    "profile": score_profile,
    "DAS, learned rank": partial(score_search, find=find_by_learned_rank),
    "DAS, non-linear": partial(score_search, find=find_by_non_linear_das),
    "attribution": score_attribution,
    "CKA": score_cka,
    "PLOT": partial(score_search, find=find_by_plot),
}


def draw_confusion(found: pd.DataFrame) -> Figure:
    """For each method a matrix: networks of each algorithm (rows), and which one it names (columns)."""
    figure, axes = subplots(9.6, 8.2, 4, 4)
    judged = found[found["named"].isin([*LABELS, "abstains"])].groupby("method", sort=False)
    for ax, (name, of_method) in zip(axes.flat, judged, strict=False):
        table = pd.crosstab(of_method["algorithm"], of_method["named"])
        table = table.reindex(index=[*LABELS, "none"], columns=[*LABELS, "abstains"], fill_value=0)
        shares = table.div(table.sum(axis=1), axis=0).fillna(0)
        heat_map(ax, shares, Normalize(0, 1), "Blues", table.map(str), 9)
        set_panel_title(ax, str(name))
        ax.set_xlabel(f"named ({sum(table.at[x, x] for x in LABELS)} right)", fontsize=8, color=GREY)
    for ax in axes[:, 0]:
        ax.set_ylabel("true algorithm", fontsize=8, color=GREY)
    return figure


def table(found: pd.DataFrame) -> str:
    """A row for each method, in Markdown: if it must answer, and then with abstention, beside the predictions."""
    lines = [["method", "right if it must answer", "written by hand", "trained", "above 0", "AUC"]]
    lines[0] += ["may abstain: right", "wrong", "abstained", "named in nulls", "predicted"]
    of_five_bits = (found["algorithm"] != "none") | (found["network"].map(bits_of) == 5)  # as predicted
    with_abstention = count_answers(found[of_five_bits])
    predicted = dict(re.findall(r"^\| (.+?) \| 100% \| (\d+%) ", PREDICTIONS.read_text(encoding="utf-8"), re.M))
    right = name_by_threshold(found) == found["algorithm"]
    for name, known in found[found["algorithm"].isin(LABELS)].groupby("method", sort=False):
        answers, written, n = right[known.index], known["origin"] == "handcoded", len(known)
        by_origin = [f"{part.sum()} of {len(part)}" for part in (answers[written], answers[~written])]
        at_zero = ((known["score"] > 0) == (known["algorithm"] == "sum")).sum()
        natural = f"{at_zero} of {n}" if name in DIFFERENCES else ""
        area = "{:.2f} [{:.2f}, {:.2f}]".format(*area_under_curve(known))
        rest = map(str, with_abstention.loc[name]) if name in with_abstention.index else [""] * 4
        share, promised = format_share(int(answers.sum()), n), predicted.get(str(name), "")
        lines.append([str(name), share, *by_origin, natural, area, *rest, promised])
    return markdown(*lines)


def gaps(found: pd.DataFrame) -> str:
    """Mean accuracy on the pairs that a search learned from minus that on pairs with other operands, and how many."""
    columns = ["null networks", "a wrong hypothesis", "the right one"]
    rows = found.melt(["method", "algorithm"], [f"gap_{name}" for name in LABELS]).dropna(subset="value")
    is_null, is_right = rows["algorithm"] == "none", rows["variable"] == "gap_" + rows["algorithm"]
    column = np.select([is_null, ~is_right], columns[:2], columns[2])
    cells = rows.groupby(["method", column])["value"].agg(lambda x: f"{x.mean():.2f} ({len(x)})").unstack(fill_value="")
    cells = cells.reindex(index=rows["method"].unique(), columns=columns, fill_value="")
    return markdown(["search", *columns], *cells.reset_index().values)


def area_under_curve(rows: pd.DataFrame, resamples: int = 2000) -> tuple[float, float, float]:
    """How often a sum network scores higher than a carry network, with the 95% interval of a bootstrap over kinds.

    No threshold is involved. 1/2 is chance, ties count one half, and rows without a number or an algorithm are left
    out. Kinds are drawn among those of the sum and among those of carries.
    """
    known = rows[rows["algorithm"].isin(LABELS)].dropna(subset="score")
    sums, carries = (
        [kind.to_numpy() for _, kind in known[known["algorithm"] == name].groupby("kind")["score"]] for name in LABELS
    )
    if not (sums and carries):
        received = ", ".join(known["algorithm"].unique()) or "none"
        raise UserError(f"networks: scores of {received}; expected some of sum and of carries")
    wins = np.array([[np.sign(np.subtract.outer(x, y)).sum() for y in carries] for x in sums])  # by kinds
    pairs = np.array([[len(x) * len(y) for y in carries] for x in sums])
    rng = np.random.default_rng(0)
    areas = []
    for _ in range(resamples):
        drawn = np.ix_(*(rng.integers(len(kinds), size=len(kinds)) for kinds in (sums, carries)))
        areas.append(0.5 + wins[drawn].sum() / pairs[drawn].sum() / 2)
    low, high = np.quantile(areas, [0.025, 0.975])
    return float(0.5 + wins.sum() / pairs.sum() / 2), float(low), float(high)


def read_results(path: Path) -> pd.DataFrame:
    """The rows of a table that `main` wrote, judged again."""
    rows = pd.read_csv(path, keep_default_na=False).reindex(columns=SCORE_COLUMNS)
    numbers = SCORE_COLUMNS[SCORE_COLUMNS.index("score") :]
    return name_algorithms(rows.assign(**rows[numbers].apply(pd.to_numeric)), MIN_ACCURACY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="*", help="directories of trained networks, or globs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = (read_results(options.out) if options.out.is_file() else pd.DataFrame()).reindex(columns=SCORE_COLUMNS)
    for network in sorted(ae.zoo(*options.runs, nulls=True), key=lambda x: (x.bits, x.seed % 100)):
        own = (rows["network"] == network.name) & (rows["seed"] == network.seed)
        done = {*rows.loc[own & rows["sum"].notna(), "method"]}
        if missing := {name: method for name, method in METHODS.items() if name not in done}:
            model = network.load()
            scores = [score_network(*item, network, model) for item in missing.items()]
            new = pd.DataFrame(scores, columns=SCORE_COLUMNS)
            rows = pd.concat([rows[~(own & rows["method"].isin(missing))], new], ignore_index=True)
            rows.to_csv(options.out, index=False, float_format="%.4g")
            print(network.name, network.seed, f"{new['seconds'].sum():.0f} s", flush=True)
    found = read_results(options.out)  # judged on the digits that the file keeps
    found = found.sort_values("method", key=lambda x: x.map([*METHODS].index), kind="stable")
    found[COLUMNS].to_csv(options.out, index=False, float_format="%.4g")
    save_png(draw_confusion(found), options.out.with_suffix(".png"))
    print(table(found))


if __name__ == "__main__":
    with one_line_errors():
        main()
