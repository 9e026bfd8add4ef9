"""Mean activations by position and token, which show whether an encoder mixes positions."""

import torch

from arith_erd.digits import VOCAB_SIZE
from arith_erd.interp.slopes import token_means
from arith_erd.tasks import Add


def test_the_means_by_token_are_the_encoder_itself_if_nothing_is_mixed() -> None:
    prompt = torch.as_tensor(Add().examples().prompt)
    places = torch.arange(prompt.shape[1])
    own = (100.0 * places + prompt)[..., None]
    means = token_means(own, prompt, VOCAB_SIZE)
    assert torch.allclose(means[places, prompt], own)
    assert (means != 0).sum() == 29
    mixed = own + prompt.flip(1)[..., None]  # the tokens of mirrored positions are independent
    expected = own + prompt.float().mean(0).flip(0)[:, None]
    assert torch.allclose(token_means(mixed, prompt, VOCAB_SIZE)[places, prompt], expected)
