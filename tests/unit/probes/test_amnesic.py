"""Erasing what a network needs destroys its answers, and erasing what it does not need does not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from arith_erd.errors import UserError
from arith_erd.interp.erasure import inlp, probe_predictions, whiten
from arith_erd.interp.hooked import Hooked, finite_cache
from arith_erd.models.weights import load_authors_network
from arith_erd.probes.amnesic import Amnesic, accuracy_after, baseline_error, probe_error
from arith_erd.tasks import Add, Add3, Mul, Sub, Task
from tests.unit.interp.toys import Toy, logits
from tests.unit.probes.small import measured

OFFICIAL = Path(__file__).parents[4] / "shared" / "official"


class Reader(Toy):
    """Answers by reading each bit of the answer off a channel of its own; the other channels are noise."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.noise = 0.3 * torch.randn(task.size, task.width, 5, generator=torch.Generator().manual_seed(0))

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        length = answer_in.shape[1]
        sign = 2 * self.at("answer", memory, length) - 1
        return logits(self.site(torch.cat([sign[..., None], self.noise[memory, :length]], dim=-1))[..., 0])


def test_erasing_a_needed_concept_destroys_the_answer() -> None:
    """Every concept and method on a network whose answer depends only on the completion bits."""
    model = Hooked(Reader(Add(3)), task=Add(3))
    rows = measured(Amnesic([model], site="dec.1", iterations=1, num_controls=4))
    assert set(rows["concept"]) == {*Add(3).concept_names}
    bits = rows[rows["concept"] == "completion_bits"]
    assert (bits["seq_acc_after"] < 0.3).all()
    assert (bits["seq_acc_after_unseen"] < 0.3).all()
    assert (bits["probe_error_before"] == 0).all()
    assert (bits.loc[bits["method"] != "inlp", "probe_error_after"] > 0.4).all()  # INLP leaves some of it readable
    assert (bits["control_rank_mean"] > 0.8).all()


def test_too_many_iterations_are_refused_by_the_key_of_the_probe() -> None:
    with pytest.raises(UserError, match=r"^probe\.iterations=9: expected from 0 to"):
        measured(Amnesic([Hooked(Reader(Add(3)), task=Add(3))], site="dec.1", iterations=9))


def test_probe_error_is_a_distance_of_numbers_and_a_share_of_wrong_bits():
    assert probe_error(torch.tensor([[3], [5]]), torch.tensor([[3.0], [8.0]])) == pytest.approx(4.5**0.5)
    bits = torch.tensor([[0, 1], [1, 1]])
    assert probe_error(bits, torch.tensor([[0.1, 0.9], [0.4, 0.7]])) == 0.25
    assert probe_error(bits, torch.full((2, 2), 0.5 + 1e-12)) == 0.75  # a tie counts as 0, rounding errors or not


def test_operands_bits_give_the_value_of_a_sum_and_not_of_a_product():
    for task, linear in ((Add(3), True), (Mul(3), False), (Add3(2), True), (Add(1, base=10), True), (Sub(3), False)):
        pairs = task.examples()
        concepts = {name: torch.as_tensor(z) for name, z in task.concepts(*pairs.operands.T).items()}
        assert (baseline_error(task, concepts["value"]) < 1e-9) == linear
        assert baseline_error(task, concepts[f"operand_{task.digit_noun}"]) < 1e-9


@pytest.mark.slow
@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="../shared/official is absent: the authors' weights are not ours")
def test_authors_weights_keep_answering_after_inlp_of_the_value():
    model = Hooked(load_authors_network(OFFICIAL / "add_model", task := Add()), task=task)
    embeddings = finite_cache(model, task.examples(), ["dec.3"])["dec.3"].flatten(1)
    value = torch.as_tensor(task.examples().answer)[:, None]
    measure = accuracy_after(model, "dec.3", torch.arange(0, len(value), 4))  # of all pairs it is the same
    white = whiten(embeddings)
    eraser = inlp(white, value, 2)
    assert probe_error(value, probe_predictions(white, value)) == pytest.approx(0.267, abs=5e-4)
    assert probe_error(value, probe_predictions(white, value, eraser)) == pytest.approx(0.393, abs=5e-4)
    # expected.json has plain least squares, which takes the rounding errors of float32 for data: INLP does nothing.
    plain = inlp(whiten(embeddings, 1e-12), value, 2)
    white = whiten(plain(embeddings.double()), 1e-12)
    assert probe_error(value, probe_predictions(white, value)) == pytest.approx(0.267, abs=5e-4)
    assert measure(eraser) == measure(plain) == 1
