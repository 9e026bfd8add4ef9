"""Error messages are one line, safe to print, and of bounded length."""

import pytest

from arith_erd.errors import MAX_MESSAGE_LENGTH, UserError, nearest


def test_message_is_one_line_without_control_characters() -> None:
    assert str(UserError("two\nlines \x1b[31m")) == r"two lines \x1b[31m"


def test_long_message_keeps_its_beginning_and_end() -> None:
    text = str(UserError(f"first {'x' * 5000} last"))
    assert len(text) <= MAX_MESSAGE_LENGTH + len(" ... ")
    assert text.startswith("first ")
    assert text.endswith(" last")


KEYS = ("data.batch_size", "task.bits", "trainer.max_epochs", "model.net.num_layers", "model.net.d_model", "split.seed")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        *((name, KEYS, "model.net.num_layers") for name in ("layers", "n_layers", "depth", "model.layers")),
        *((name, KEYS, "trainer.max_epochs") for name in ("epochs", "max_epoch", "trainer.epochs")),
        *(("hidden_size", KEYS, "model.net.d_model"), ("batch", KEYS, "data.batch_size"), ("optimizer", KEYS, "")),
        ("patch", ("dose", "patching"), "patching"),
        ("cosine", ("none", "warmup_cosine"), "warmup_cosine"),
        ("add-nanogtp", ("mul-nanogpt", "add-transformer", "add-nanogpt"), "add-nanogpt"),
        *(
            (name, ("enc.3", "dec.3", "dec.1.mlp.post", "dec.3.mlp.post"), "dec.3.mlp.post")
            for name in ("dec.3.mlp.pots",)
        ),
        ("dec.7", ("dec.1", "dec.2"), ""),
        ("anything", (), ""),
    ],
)
def test_misspelt_part_of_a_name_or_another_word_finds_the_name(name, known, meant):
    assert nearest(name, known) == meant
