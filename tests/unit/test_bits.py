import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd import bits
from arith_erd.tasks import Add

WIDTHS = st.integers(1, 20)
ORDERS = st.sampled_from(bits.ORDERS)


@pytest.mark.parametrize("token", [bits.UNUSED, bits.START, bits.OPERATOR])
def test_token_that_is_not_a_bit_decodes_as_zero(token):
    assert bits.decode_completion([[bits.ONE, token, bits.ONE]], "reverse").tolist() == [0b101]
    assert bits.decode_completion([[bits.ONE, bits.ONE, token]], "plain").tolist() == [0b110]


def in_base(value: int, base: int) -> str:
    """As one learns it at school: divide, write the remainder, repeat with the quotient."""
    text = ""
    while value or not text:
        value, digit = divmod(value, base)
        text = "0123456789abcdef"[digit] + text
    return text


@st.composite
def numbers_in_a_base(draw):
    base, width = draw(st.integers(2, 16)), draw(st.integers(1, 12))
    return base, width, draw(st.lists(st.integers(0, base**width - 1), max_size=8))


@given(numbers_in_a_base())
def test_digits_least_significant_first(case):
    base, width, numbers = case
    expected = [[int(c, 16) for c in reversed(in_base(x, base).zfill(width))] for x in numbers]
    assert bits.to_digits(numbers, width, base).tolist() == expected
    assert bits.from_digits(bits.to_digits(numbers, width, base), base).tolist() == numbers


@given(numbers_in_a_base(), ORDERS)
def test_decode_inverts_encode_in_any_base(case, order):
    base, width, numbers = case
    tokens = bits.encode_completion(numbers, width, order, base)
    assert bits.decode_completion(tokens, order, base).tolist() == numbers


def test_worked_example_in_base_10():
    examples = Add(2, base=10).examples([47], [85])
    prompt, completion = examples.prompt, examples.completion
    assert prompt.tolist() == [[10, 7, 2, 8, 11]]
    assert completion.tolist() == [[5, 6, 4]]
    assert (bits.render(prompt), bits.render(completion)) == (["74+58"], ["231"])
