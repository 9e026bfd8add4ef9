"""No network fixes the rule by which it is counted, and only networks of a known algorithm count."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import arith_erd as ae
from arith_erd.catalog.scoring import SCORE_COLUMNS, add_verdicts, fit_threshold, zoo
from arith_erd.errors import UserError


def table(scores: np.ndarray, method: str = "mine") -> pd.DataFrame:
    """Of 24 networks: three kinds of either algorithm, four seeds each."""
    kinds = [(f"{algorithm} {k}", algorithm) for algorithm in ("sum", "carries") for k in range(3)]
    rows = [(method, kind, seed, algorithm, 0.0, 0.0) for kind, algorithm in kinds for seed in range(4)]
    return pd.DataFrame(rows, columns=SCORE_COLUMNS).assign(score=scores)


@pytest.mark.parametrize("kind", ["sum 0", "carries 2"])
def test_scores_of_a_kind_never_move_the_threshold_that_names_it(kind: str):
    """Whatever the others of its kind score, a network keeps its name."""
    rng = np.random.default_rng(0)
    rows = table(rng.normal(size=24))
    own = rows["network"] == kind
    before = add_verdicts(rows)["named"]
    for index in rows.index[own]:
        others = own & (rows.index != index)
        moved = rows.assign(score=rows["score"].where(~others, rng.normal(scale=9, size=24)))
        assert add_verdicts(moved)["named"][index] == before[index]


def test_what_only_marks_a_kind_is_not_rewarded():
    """A score that knows the kinds and nothing of algorithms: halves by seed would call it right everywhere."""
    kinds = np.repeat([0.0, 3.0, 1.0, 2.0, 5.0, 4.0], 4)  # sum 0, sum 1, sum 2, carries 0, ..
    found = add_verdicts(table(kinds))
    assert found["right"].mean() <= 0.5


def test_noise_is_right_in_half_of_the_networks_of_each_parity():
    rng = np.random.default_rng(1)
    found = pd.concat([add_verdicts(table(rng.normal(size=24), f"noise {i}")) for i in range(100)])
    by_parity = found["right"].astype(float).groupby(found["seed"] % 2).mean()
    assert by_parity.between(0.42, 0.58).all()


def test_networks_without_a_known_algorithm_are_named_and_neither_fix_nor_count():
    rows = table(np.where(np.arange(24) < 12, 40.0, 0.0) + np.arange(24))  # which separates the algorithms
    free = rows.assign(network="free", algorithm="", score=-100.0)
    found = add_verdicts(pd.concat([rows, free], ignore_index=True))
    assert found["named"][24:].tolist() == ["carries"] * 24
    assert found["right"][24:].isna().all()
    assert found["right"][:24].tolist() == add_verdicts(rows)["right"].tolist() == [1] * 24


def test_threshold_of_one_algorithm_alone_is_refused():
    with pytest.raises(UserError, match="all but one kind have one algorithm"):
        fit_threshold(np.array([0.0, 1.0]), np.array([True, True]))


def test_references_have_several_kinds_of_both_algorithms():
    networks = zoo()
    assert len({(one.name, one.seed) for one in networks}) == len(networks)
    kinds = {(one.name, one.algorithm) for one in networks}
    assert [sum(x == algorithm for _, x in kinds) for algorithm in ("sum", "carries")] == [3, 5]


def test_trained_network_counts_if_it_is_right_everywhere_and_follows_its_variables(tmp_path):
    """Seed 0 does; seed 1 misses an interchange at one token, seed 2 an answer."""
    variables = "{prefix: {site: answer}, carry: {site: dec.2, dims: [0, 7]}, xor: {site: dec.2, dims: [8, 15]}}"
    loss = f"{{variables: {variables}, causal_model: prefix_carry}}"
    (tmp_path / "config.yaml").write_text(f"data: {{}}\nmodel: {{name: nanogpt, loss: {loss}}}\ntask: {{bits: 7}}")
    seeds = [{"seed": i, "train_seq_acc": 1.0, "val_seq_acc": 1.0 - 0.01 * (i == 2)} for i in range(3)]
    (tmp_path / "summary.json").write_text(json.dumps({"seeds": seeds}))
    lines = [
        f"{epoch},{seed},{split},1.0,{0.5 if epoch == 1 or (seed, split) == (1, 'xor') else 1.0}"
        for epoch in (1, 2)
        for seed in range(3)
        for split in ("val", "prefix", "carry", "xor")
    ]
    (tmp_path / "tokens.csv").write_text("\n".join(["epoch,seed,split,r0,r1", *lines]))
    (found,) = zoo(tmp_path)[len(zoo()) :]
    assert (found.name, found.seed, found.algorithm) == ("7-bit nanogpt carry+xor prefix_carry", 0, "carries")
    assert (found.variables, found.sites) == (("prefix", "carry", "xor"), ("dec.2",))


@pytest.mark.slow
def test_how_to_page_runs_as_printed(root, monkeypatch):
    """On one network of each of four kinds."""
    kinds = ("erd", "remainder", "prefix_carry", "lookahead_carry")
    chosen = [one for one in zoo() if one.name in kinds and one.seed == 2000]
    monkeypatch.setattr(ae, "zoo", lambda: chosen)
    page = (root / "docs" / "how-to" / "score-a-method.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    exec(block, names := {})
    assert names["rows"]["named"].isin(["sum", "carries"]).all()
    assert len(names["rows"]) == len(chosen)


def test_a_method_that_names_something_else_is_refused():
    for wrong in ("lookup", ["sum"]):
        with pytest.raises(UserError, match=r"^<lambda>: returned .* for erd; expected a number, or sum or carries"):
            ae.score_method(lambda model, wrong=wrong: wrong, zoo()[0])
