"""Linear probes read what is there, on examples that they have not seen, and nothing where there is nothing."""

import numpy as np
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.linear_probe import linear_probe

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.standard_normal((400, 5, 4)))
COLUMNS = X[:, 0, :3] * torch.tensor([1, 0, 1])


def test_signal_is_read_and_noise_is_not() -> None:
    z = X[:, 2, 1] - 3 * X[:, 0, 0]
    found = linear_probe(X, z)
    assert found.r2 > 0.999
    assert found.control < 0.1
    assert linear_probe(X, RNG.standard_normal(400)).r2 < 0.1
    by_class = linear_probe(X, z > 0)
    assert by_class.accuracy > 0.95
    assert 0.3 < by_class.control < 0.7
    assert (found.num_train, found.num_test) == (200, 200)


def test_weight_and_bias_predict_in_the_units_of_the_activations() -> None:
    x = 5 * X + 2
    number = linear_probe(x, 3 * x[:, 2, 1] + 7)
    predicted = x.flatten(1).numpy() @ number.weight.T + number.bias
    np.testing.assert_allclose(predicted[:, 0], 3 * x[:, 2, 1] + 7, atol=0.5)
    assert number.weight.shape == (1, 20)
    assert number.weight[0, 9] == pytest.approx(3, rel=0.05)
    classes = linear_probe(x, x[:, 0, 0].argsort().argsort() // 134, classes=True)
    logits = x.flatten(1).numpy() @ classes.weight.T + classes.bias
    assert logits.shape == (400, 3)
    assert np.corrcoef(logits[:, 2] - logits[:, 0], x[:, 0, 0])[0, 1] > 0.95


def test_constant_columns_are_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="^linear_probe: left out columns 1 of z, with one value"):
        found = linear_probe(X, COLUMNS)
    assert found.r2 == pytest.approx(linear_probe(X, COLUMNS[:, [0, 2]]).r2)


def test_examples_of_one_group_are_in_one_part() -> None:
    """What follows from the group alone is read only if the group has been seen."""
    group = np.repeat(np.arange(50), 8)
    x, z = RNG.standard_normal((50, 60))[group], RNG.standard_normal(50)[group]
    assert linear_probe(x, z).r2 > 0.9 > 0.3 > linear_probe(x, z, groups=group).r2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_probe(X[:4], X[:4, 0, 0]), "received 4 activations and 4 values"),
        (lambda: linear_probe(X, X[:9, 0, 0]), "received 400 activations and 9 values"),
        (lambda: linear_probe(X, X[:, 0], classes=True), "received 4 columns of classes"),
        (lambda: linear_probe(X, torch.full((400,), torch.nan)), "z: contains NaN or infinity"),
        (lambda: linear_probe(X, torch.zeros(400)), "z has one value"),
        (lambda: linear_probe(X, np.full(400, 5.0)), "z has one value"),
        (lambda: linear_probe(X, np.arange(400) == 9, classes=False), "z has one value in the examples"),
        (lambda: linear_probe([], []), "x: received shape"),
        (lambda: linear_probe(X, X[:, 0, 0], groups=[1]), r"received groups \(1,\); expected one"),
        (lambda: linear_probe(X, X[:, 0, 0], groups=[0] * 400), "received test_share=0.5 of 1 group; expected two or"),
        (lambda: linear_probe(X, X[:, 0, 0], test_share=0.001), "received test_share=0.001 of 400 groups"),
        (lambda: linear_probe(X, X[:, 0, 0], test_share=0.9999), "received test_share=0.9999 of 400 groups"),
        (lambda: linear_probe(X, X[:, 0, 0], test_share="a"), "test_share=a: expected a number between 0 and 1"),
        (lambda: linear_probe(X, X[:, 0, 0], seed="a"), "seed=a: expected an integer from 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message: str) -> None:
    with pytest.raises(UserError, match="^(linear_probe: )?" + message):
        call()
    with pytest.raises(UserError, match=r"has no accuracy, but r2; expected classes=True$"):
        _ = linear_probe(X, X[:, 0, 0]).accuracy
