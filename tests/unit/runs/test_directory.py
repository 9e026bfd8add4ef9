import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.runs import METRICS, Run, epochs_to, identity, run_name

CONFIG = compose("train", ["logger=wandb", "task=random_output", "model=nanogpt"]).resolved

# What may change without changing the weights; `epochs` only does through trainer.max_epochs.
HARMLESS = (
    *("logger.", "checkpoint.", "epochs.", "fail_fast", "item", "pack.", "runs_dir"),
    *("trainer.compile", "trainer.cuda_graphs", "trainer.accelerator"),
)


def leaves(node, prefix=""):
    for key, value in node.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changed(config, key):
    """The same configuration with another value at ``key``."""
    config = copy.deepcopy(config)
    *path, last = key.split(".")
    node = config
    for part in path:
        node = node[part]
    old = node[last]
    node[last] = not old if isinstance(old, bool) else f"{old}1" if isinstance(old, str) else 2 if old is None else 3
    if isinstance(old, int | float) and not isinstance(old, bool):
        node[last] = old + 1
    assert node[last] != old
    return config


@pytest.mark.parametrize("key", [key for key, _ in leaves(CONFIG) if key.startswith(HARMLESS)])
def test_name_ignores_what_cannot_change_the_weights(key):
    assert run_name(changed(CONFIG, key)) == run_name(CONFIG)


@pytest.mark.parametrize("key", [key for key, _ in leaves(CONFIG) if not key.startswith(HARMLESS)])
def test_name_tells_apart_whatever_can_change_the_weights(key):
    assert run_name(changed(CONFIG, key)) != run_name(CONFIG)


def test_keys_that_do_not_matter_are_these_and_no_others():
    ignored = {key for key, _ in leaves(CONFIG) if run_name(changed(CONFIG, key)) == run_name(CONFIG)}
    assert {key.split(".")[0] for key in ignored} == {
        "logger",
        "checkpoint",
        "epochs",
        "fail_fast",
        "item",
        "pack",
        "runs_dir",
        "trainer",
    }
    assert {key for key in ignored if key.startswith("trainer.")} == {
        "trainer.compile",
        "trainer.cuda_graphs",
        "trainer.accelerator",
    }


def test_name_is_readable(config):
    assert run_name({**config, "seed": "0-4"}).startswith("add-random-transformer-none-seed0-4-")
    assert len(run_name(config).rpartition("-")[2]) == 8


@pytest.mark.parametrize("spec", [[0, 1, 2, 3, 4], "4,0-3", [3, "0-2", 4], "0,1,2,3,4"])
def test_spellings_of_one_pack_share_a_name(spec, config):
    assert run_name({**config, "seed": spec}) == run_name({**config, "seed": "0-4"})


@pytest.mark.parametrize("spec", ["0-3", "0-5", "1-5", 0, "0,4"])
def test_another_pack_has_another_name(spec, config):
    assert run_name({**config, "seed": spec}) != run_name({**config, "seed": "0-4"})


def test_name_fits_a_file_name_for_any_number_of_seeds(config):
    many = {**config, "seed": list(range(0, 4000, 2))}
    assert len(run_name(many)) < 120
    assert run_name(many) != run_name({**config, "seed": list(range(0, 4002, 2))})
    assert set(run_name({**config, "seed": "0-4,7,9"})) <= set("abcdefghijklmnopqrstuvwxyz_0123456789-+")


def test_name_ignores_the_order_of_keys(config):
    backwards = {key: dict(reversed(v.items())) if isinstance(v, dict) else v for key, v in reversed(config.items())}
    assert run_name(backwards) == run_name(config)


def test_keys_that_came_later_count_only_where_they_changed(config):
    before = config | {"task": {k: v for k, v in config["task"].items() if k != "base"}}
    assert config["task"]["base"] == 2
    assert run_name(before) == run_name(config)
    assert run_name(config | {"task": config["task"] | {"base": 3}}) != run_name(config)


def test_name_of_the_default_run_is_that_of_the_first_version():
    assert run_name(compose("train").resolved) == "add-random-transformer-none-seed0-a7f42b33"


def test_identity_is_json(config):
    assert json.loads(json.dumps(identity(config))) == identity(config)


# Files


def row(epoch: int, seed: int, **values: float):
    return dict.fromkeys(METRICS, 0.5) | {"epoch": epoch, "seed": seed} | values


ACCURACY = st.floats(0, 1)
ROWS = st.lists(
    st.builds(
        row,
        st.integers(1, 4000),
        st.integers(0, 2**31 - 1),
        train_loss=st.floats(0, 1e30),
        val_seq_acc=ACCURACY,
        seconds=st.floats(0, 1e6),
    ),
    max_size=5,
)


@given(ROWS, ROWS)
def test_metrics_come_back(tmp_path_factory, first, second):
    run = Run(tmp_path_factory.mktemp("run"))
    assert run.metrics() == []
    run.write_metrics(first)
    run.append_metrics(second)
    assert run.metrics() == [pytest.approx(r, rel=1e-8) for r in first + second]
    assert (run.path / "metrics.csv").read_text().splitlines()[0] == ",".join(METRICS)
    run.write_metrics(first)
    assert len(run.metrics()) == len(first)


def test_columns_are_those_of_the_design():
    assert ",".join(METRICS) == (
        "epoch,seed,train_loss,train_token_acc,train_seq_acc,val_token_acc,val_seq_acc,seconds"
    )


@pytest.mark.parametrize("text", ["a,b\n1,2\n", ",".join(METRICS) + "\none,0,0,0,0,0,0,0\n"])
def test_rows_with_other_columns_are_refused(text, tmp_path):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(UserError, match=r"metrics\.csv: not the columns epoch,"):
        Run(tmp_path).metrics()


def test_run_is_finished_when_it_says_so_and_has_the_weights_of_all_its_seeds(tmp_path, config):
    run = Run(tmp_path / "run")
    run.create(config)
    assert not run.finished
    with pytest.raises(UserError, match="not finished"):
        run.summary()
    run.finish({"seeds": [{"seed": 0, "val_mae": math.nan, "train_loss": math.inf}, {"seed": 1}]})
    entries = [{"seed": 0, "val_mae": None, "train_loss": None}, {"seed": 1}]
    assert run.summary() == {"status": "finished", "seeds": entries}
    for seed in (0, 1):
        assert not run.finished
        run.weights(seed).touch()
    assert run.finished


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "{}", '{"status": "finished"}', '{"status": "running", "seeds": [{"seed": 0}]}']
)
def test_summary_that_does_not_say_finished_leaves_the_run_unfinished(text, tmp_path, config):
    run = Run(tmp_path)
    run.create(config)
    run.weights(0).touch()
    (tmp_path / "summary.json").write_text(text)
    assert not run.finished


def test_configuration_comes_back(tmp_path, config):
    run = Run(tmp_path / "run")
    run.create(config)
    assert run.config() == config
    assert run_name(run.config()) == run_name(config)


@pytest.mark.parametrize("text", [None, "- 1\n- 2\n", "a: [", "\udcff"])
def test_folder_that_is_not_a_run_is_refused(text, tmp_path):
    if text is not None:
        (tmp_path / "config.yaml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=str(tmp_path)):
        Run(tmp_path).config()


def test_run_directory_is_created_only_by_create(tmp_path, config):
    run = Run(tmp_path / "runs" / run_name(config))
    assert run.metrics() == []
    assert not run.finished
    assert not list(tmp_path.iterdir())


def test_epochs_to_is_the_first_epoch_at_which_that_seed_got_there():
    accuracies = {0: [0.1, 0.95, 0.9, 0.99], 1: [0.2, 0.3, 0.4, 0.5]}
    rows = [
        row(epoch, seed, val_seq_acc=values[epoch - 1]) for epoch in (1, 2, 3, 4) for seed, values in accuracies.items()
    ]
    assert epochs_to(rows, 0, 0.95) == 2
    assert epochs_to(rows, 0, 0.96) == 4
    assert epochs_to(rows, 1, 0.5) == 4
    assert epochs_to(rows, 1, 0.95) is None
    assert epochs_to([], 0, 0.0) is None
