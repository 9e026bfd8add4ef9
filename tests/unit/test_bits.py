"""Integers, digits and tokens are translated without loss, in every base and order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd import bits
from arith_erd.tasks import Add


@pytest.mark.parametrize("token", [bits.PAD, bits.START, bits.OPERATOR])
def test_token_that_is_not_a_digit_decodes_as_zero(token):
    assert Add(2).decode([[bits.ONE, token, bits.ONE]]).tolist() == [0b101]
    assert Add(2, completion_order="plain").decode([[bits.ONE, bits.ONE, token]]).tolist() == [0b110]


@st.composite
def numbers_in_a_base(draw):
    base, width = draw(st.integers(2, 16)), draw(st.integers(1, 12))
    return base, width, draw(st.lists(st.integers(0, base**width - 1), max_size=8))


@given(numbers_in_a_base())
def test_digits_least_significant_first(case):
    base, width, numbers = case
    expected = [[int(c, 16) for c in reversed(np.base_repr(x, base).zfill(width))] for x in numbers]
    assert bits.to_digits(numbers, width, base).tolist() == expected
    assert bits.from_digits(bits.to_digits(numbers, width, base), base).tolist() == numbers
