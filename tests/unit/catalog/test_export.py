"""Exported networks compute the same elsewhere, and loading one back runs no code."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from arith_erd.catalog.export import push_to_hub, save_pretrained, to_hooked_transformer
from arith_erd.catalog.loading import load_pretrained, load_run
from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.models import NanoGPT, Transformer
from arith_erd.runs.directory import Run
from arith_erd.tasks import Add

TASK = Add(3)
SIZE = {"prompt_length": 7, "answer_length": 4, "d_model": 16, "num_heads": 2, "num_layers": 3}
ABLATED = [{}, {"attention": False}, {"feed_forward": False}, {"positional_encoding": False}]
FILES = ["README.md", "config.json", "model.safetensors"]


@pytest.mark.parametrize("ablated", ABLATED, ids=str)
def test_transformer_lens_computes_the_same(ablated: dict[str, bool]) -> None:
    """In float64, logits and activations agree to rounding; the answer's last token changes no logit before it."""
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    torch.manual_seed(0)
    network = NanoGPT(**SIZE, **ablated)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # so that every part matters
    model, examples = Hooked(network.double(), task=TASK), TASK.examples()
    tokens = torch.cat([*model.inputs(examples), torch.from_numpy(examples.completion[:, -1:])], dim=-1)
    with torch.no_grad():
        logits, cache = (bridge := to_hooked_transformer(model)).run_with_cache(tokens)
    sites = {"dec.2": "blocks.1.hook_resid_post"}
    sites |= {"dec.2.attn.z": "blocks.1.attn.hook_z"} if ablated != {"attention": False} else {}
    sites |= {"dec.2.mlp.post": "blocks.1.mlp.hook_post"} if ablated != {"feed_forward": False} else {}
    expected, ours = model.run_with_cache(examples, list(sites), include_prompt=True)
    close = partial(torch.testing.assert_close, rtol=0, atol=1e-10)
    close(logits[:, 7:11], expected)
    for site, hook in sites.items():
        close(cache[hook][:, :11], ours[site])
    with torch.no_grad():
        bridge.original_model.load_state_dict({k: 0 * x for k, x in bridge.original_model.state_dict().items()})
    assert torch.equal(model.run(examples), expected)  # the bridge is a copy


class Double(NanoGPT):
    """A network that TransformerLens has no name for."""


def test_what_cannot_be_exported_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for network in (Double(**SIZE), Transformer(**SIZE)):
        with pytest.raises(UserError, match=rf"received a {type(network).__name__}; expected a NanoGPT$"):
            to_hooked_transformer(Hooked(network))
    model = Hooked(NanoGPT(**SIZE), name="mine")
    monkeypatch.setitem(sys.modules, "transformer_lens", None)
    with pytest.raises(UserError, match=r"^transformer_lens: .*pip install 'arith_erd\[lens\]'$"):
        to_hooked_transformer(model)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: push_to_hub(model, "user/mine"), lambda: load_pretrained("user/mine")):
        with pytest.raises(UserError, match=r"huggingface_hub: .*pip install 'arith_erd\[hub\]'$"):
            call()
    with pytest.raises(UserError, match=r"mine has no configuration; expected a network from fit"):
        save_pretrained(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_saved_network_is_loaded_bit_for_bit(whole: Run, tmp_path: Path) -> None:
    for seed, epoch in ((0, None), (1, 2), (1, 0)):
        model = load_run(whole.path, seed, epoch)
        examples, folder = model.task.examples(), tmp_path / f"{seed}-{epoch}"
        save_pretrained(model, folder)
        assert sorted(path.name for path in folder.iterdir()) == FILES
        loaded = load_pretrained(folder)
        assert torch.equal(loaded.run(examples), model.run(examples))
        assert (loaded.seed, loaded.provenance.epoch, loaded.name) == (seed, epoch, folder.name)
        assert (loaded.provenance.split(examples) == model.provenance.split(examples)).all()
        save_pretrained(loaded, tmp_path / "again")
        assert all((folder / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in FILES)
        with pytest.raises(UserError, match=rf"^seed=7: expected {seed} for {folder.name}"):
            load_pretrained(folder, seed=7)
        assert not any(str(whole.path.parent).encode() in (folder / file).read_bytes() for file in FILES)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_saving_keeps_the_precision_and_refuses_a_changed_architecture(dtype, trained_pack: Run, tmp_path) -> None:
    model = load_run(trained_pack.path, 5)
    model.network.to(dtype)
    save_pretrained(model, tmp_path)
    saved = load_pretrained(tmp_path).network.state_dict()
    assert all(
        torch.equal(x, saved[name]) and saved[name].dtype == dtype for name, x in model.network.state_dict().items()
    )
    model.sites["dec.1"].feed_forward = None
    with pytest.raises(UserError, match=r"^save_pretrained: weights do not fit the configuration .*: decoder\.0"):
        save_pretrained(model, tmp_path / "changed")
    assert not (tmp_path / "changed").exists()


def test_card_has_the_accuracies_of_the_summary_and_only_checked_names(trained_pack: Run, tmp_path: Path) -> None:
    """The name of a folder, which can be any text, is not in it."""
    run = Run(shutil.copytree(trained_pack.path, tmp_path / "<script>`|\n---"))
    save_pretrained(load_run(run.path, 5), tmp_path / "saved")
    text = (tmp_path / "saved" / "README.md").read_text()
    _, metadata, body = text.split("---\n", maxsplit=2)
    (said,) = (row for row in run.summary()["seeds"] if row["seed"] == 5)
    (result,) = yaml.safe_load(metadata)["model-index"][0]["results"]
    measured = {metric["name"]: metric["value"] for metric in result["metrics"]}
    assert measured["sequence accuracy, 16 held-out examples"] == pytest.approx(said["val_seq_acc"])
    assert measured["sequence accuracy, 48 training examples"] == pytest.approx(said["train_seq_acc"])
    assert f"16 held-out examples: {said['val_seq_acc']:.2%}" in body
    assert "seed 5" in body
    assert "script" not in text


@pytest.fixture
def saved(trained_pack: Run, tmp_path: Path) -> Path:
    save_pretrained(load_run(trained_pack.path, 3), tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("arith_erd.models.Transformer", "torch.load", r"model\.net\._target_=torch\.load: expected"),
        ('"d_model": 16', '"d_model": 32', "weights do not fit config.json"),
        ('"epoch": null', '"epoch": "<b>"', "epoch=<b>: expected an integer"),
        ('"epoch": null', '"epoch": null, "epoch": ', "config.json: JSONDecodeError"),
        ('"job"', '"jobs"', "config.json: KeyError: 'job'; expected a file from save_pretrained"),
    ],
)
def test_foreign_configuration_is_refused(saved: Path, old: str, new: str, said: str) -> None:
    config = (saved / "config.json").read_text()
    assert old in config
    (saved / "config.json").write_text(config.replace(old, new))
    with pytest.raises(UserError, match=said):
        load_pretrained(saved)


def test_weights_are_tensors_only(saved: Path) -> None:
    state = dict(load_pretrained(saved).network.state_dict())
    torch.save(state, saved / "model.safetensors")
    with pytest.raises(UserError, match="damaged, or more than tensors"):
        load_pretrained(saved)
    (saved / "model.safetensors").unlink()
    with pytest.raises(UserError, match="No such file"):
        load_pretrained(saved)


def test_hub_gets_three_files_and_loading_reads_two(trained_pack, tmp_path, monkeypatch) -> None:
    remote, model = tmp_path / "remote", load_run(trained_pack.path, 3)

    class Api:
        def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
            assert (repo_id, private, exist_ok) == ("user/mine", True, True)
            return "address"

        def upload_folder(self, *, repo_id: str, folder_path: str) -> None:
            shutil.copytree(folder_path, remote)

    def snapshot_download(repo_id: str, *, allow_patterns: list[str]) -> str:
        if repo_id != "user/mine":
            raise OSError("no such repository\nand more")
        for path in remote.iterdir():
            if path.name not in allow_patterns:
                path.unlink()
        return str(remote)

    hub = SimpleNamespace(HfApi=Api, snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert push_to_hub(model, "user/mine", private=True) == "address"
    assert sorted(path.name for path in remote.iterdir()) == FILES
    loaded = load_pretrained("user/mine")
    assert torch.equal(loaded.run(TASK.examples()), model.run(TASK.examples()))
    assert loaded.name == "mine"
    with pytest.raises(UserError, match=r"^name=user/other: no such folder here; .*: OSError: no such repository$"):
        load_pretrained("user/other")
    assert json.loads((remote / "config.json").read_text())["job"]["seed"] == 3
