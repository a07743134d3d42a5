"""Models on disk: honest directories are read, hostile and broken ones are refused by name."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx_lm.utils
import msgspec
import pytest

from core.errors import BadModel, ModelError, ModelNotFound, UnsupportedModel, UsageError
from core.models.files import catalog as catalog_module
from core.models.files import safetensors
from core.models.files.catalog import BrokenModel, Catalog, Listed, ModelEntry
from core.models.files.checked_files import MAX_CONFIG_VALUES
from core.models.files.model_folder import HeaderCache, read_folder
from core.models.files.safetensors import INDEX_NAME, MAX_HEADER_BYTES
from core.models.files.suitability import ALIASES
from core.node.disks import local_models
from core.node.disks.local_models import LocalModels
from core.settings import DEFAULT_CONTEXT, hub_cache
from tests.support.maker import make_model
from tests.support.models import fingerprint, read_entry, scan
from tests.support.waiting import until

SHARD = "model-00001-of-00003.safetensors"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "little-llama"
    make_model(directory, "llama", layers=4)
    return directory


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "little-llama"))


def edit_index(model: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((model / INDEX_NAME).read_text())
    change(index["weight_map"])
    (model / INDEX_NAME).write_text(json.dumps(index))


def test_an_entry_says_what_is_there(original: Path, tmp_path: Path) -> None:
    entry = read_entry(original)
    assert (entry.name, entry.model_type, entry.layers, entry.quantization) == ("little-llama", "llama", 4, "float32")
    assert entry.context_max == 4096
    assert entry.path == str(original)
    sizes = [json.loads(p.read_bytes()[8 : 8 + struct.unpack("<Q", p.read_bytes()[:8])[0]]) for p in weights(original)]
    ends = [max(t["data_offsets"][1] for name, t in size.items() if name != "__metadata__") for size in sizes]
    assert entry.total_bytes == sum(ends)
    make_model(tmp_path / "q", "llama", layers=2, bits=4)
    assert read_entry(tmp_path / "q").quantization == "4-bit"
    make_model(tmp_path / "b", "llama", layers=2, dtype="bfloat16")
    assert read_entry(tmp_path / "b").quantization == "bfloat16"


def weights(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.safetensors"))


def test_a_missing_directory_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="nowhere"):
        read_entry(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "a/../../b", "a\\b", "nul\0"])
def test_a_name_that_leads_outside_is_refused(model: Path, name: str) -> None:
    edit_index(model, lambda weight_map: weight_map.update(evil=name))
    with pytest.raises(BadModel, match="outside"):
        read_entry(model)


def test_a_link_that_leads_outside_is_refused(model: Path, tmp_path: Path) -> None:
    shutil.move(model / SHARD, tmp_path / "elsewhere")
    (model / SHARD).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadModel, match="leads out"):
        read_entry(model)


@pytest.mark.parametrize("name", ["config.json", SHARD])
def test_a_link_to_the_same_file_elsewhere_is_fine_in_a_folder_that_a_person_made(
    model: Path, tmp_path: Path, name: str
) -> None:
    shutil.move(model / name, tmp_path / name)
    (model / name).symlink_to(tmp_path / name)
    assert read_entry(model).name == "little-llama"
    (model / ".fetched").touch()
    with pytest.raises(BadModel, match="leads out"):
        read_entry(model)


def test_links_into_a_hub_cache_are_fine_and_so_is_a_cache_whose_blobs_lie_elsewhere(
    model: Path, tmp_path: Path
) -> None:
    repository = hub_repository(tmp_path / "hub", model)
    flat = tmp_path / "flat" / "little-llama"
    flat.mkdir(parents=True)
    for file in (repository / "snapshots" / "abc").iterdir():
        (flat / file.name).symlink_to(file.resolve())
    assert read_entry(flat).fingerprint == fingerprint(model)
    shutil.move(repository / "blobs", tmp_path / "disk")
    (repository / "blobs").symlink_to(tmp_path / "disk")
    assert read_entry(repository).fingerprint == fingerprint(model)
    (repository / "snapshots" / "abc" / "vocab.txt").symlink_to(model / "config.json")
    with pytest.raises(BadModel, match="leads out"):
        read_entry(repository)


def test_a_missing_shard_is_named(model: Path) -> None:
    (model / SHARD).unlink()
    with pytest.raises(BadModel, match=SHARD):
        read_entry(model)


def test_a_tensor_that_no_file_holds_is_named(model: Path) -> None:
    edit_index(model, lambda weight_map: weight_map.update({"model.layers.0.ghost": SHARD}))
    with pytest.raises(BadModel, match="ghost"):
        read_entry(model)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_file_that_is_cut_short_is_named(model: Path, kept: int) -> None:
    data = (model / SHARD).read_bytes()
    (model / SHARD).write_bytes(data[:kept])
    with pytest.raises(BadModel, match=SHARD):
        read_entry(model)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, (1 << 64) - 1, 0])
def test_a_header_of_absurd_size_is_refused(model: Path, length: int) -> None:
    data = (model / SHARD).read_bytes()
    (model / SHARD).write_bytes(struct.pack("<Q", length) + data[8:])
    with pytest.raises(BadModel, match="header claims"):
        read_entry(model)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1 << 62], "data_offsets": [0, 1 << 64]},
        {"dtype": "PY", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": 3, "data_offsets": [0, 4]},
        {"dtype": "F32", "data_offsets": [0, 4]},
        [],
        None,
    ],
)
def test_a_tensor_described_wrongly_is_refused(model: Path, entry: object) -> None:
    text = json.dumps({"model.layers.0.x.weight": entry}).encode()
    (model / "model-extra.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 64)
    with pytest.raises(BadModel, match="model-extra"):
        read_entry(model)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "[" * 100_000, '{"model_type": 3}', '{"model_type": "a/../b"}'])
def test_a_config_that_is_none_is_refused(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    with pytest.raises(BadModel, match=r"config\.json"):
        read_entry(model)


@pytest.mark.parametrize(
    "setting", [{"num_attention_heads": "x"}, {"num_key_value_heads": [2]}, {"sliding_window": {"a": 1}}]
)
def test_a_senseless_setting_is_refused(model: Path, setting: dict[str, object]) -> None:
    config = json.loads((model / "config.json").read_text()) | {"layer_types": ["sliding_attention"] * 4} | setting
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadModel, match=r"config\.json"):
        read_entry(model)


def test_more_layers_promised_than_present_is_incomplete(model: Path) -> None:
    config = json.loads((model / "config.json").read_text()) | {"num_hidden_layers": 9}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadModel, match="incomplete"):
        read_entry(model)


def test_pickles_are_refused(model: Path) -> None:
    for file in [*weights(model), model / INDEX_NAME]:
        file.unlink()
    with pytest.raises(BadModel, match=r"no model\*\.safetensors"):
        read_entry(model)
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(BadModel, match=r"pytorch_model\.bin .* pickled") as caught:
        read_entry(model)
    assert "safetensors" in caught.value.fix


def test_the_fingerprint_follows_the_content_not_the_name(original: Path, model: Path) -> None:
    copy = model.rename(model.with_name("other-name"))
    assert fingerprint(copy) == fingerprint(original)
    template = json.loads((copy / "tokenizer_config.json").read_text()) | {"chat_template": "x"}
    (copy / "tokenizer_config.json").write_text(json.dumps(template))
    assert fingerprint(copy) != fingerprint(original)


def test_without_an_index_the_headers_count(model: Path, tmp_path: Path) -> None:
    before = fingerprint(model)
    (model / INDEX_NAME).unlink()
    without = fingerprint(model)
    assert without != before
    make_model(tmp_path / "wider", "llama", layers=4, intermediate=160)
    shutil.copy(model / "config.json", tmp_path / "wider" / "config.json")
    (tmp_path / "wider" / INDEX_NAME).unlink()
    assert fingerprint(tmp_path / "wider") != without


def test_scan_finds_models_and_leaves_out_the_rest(model: Path) -> None:
    root = model.parent
    (root / "empty").mkdir()
    (root / "notes.txt").write_text("no model")
    shutil.copytree(model, root / "broken")
    (root / "broken" / SHARD).unlink()
    shutil.copytree(model, root / "\x1b[31mred")
    assert [e.name for e in scan([root, root / "nowhere", model])] == ["[31mred", "little-llama"]


def hub_repository(hub: Path, model: Path, name: str = "someone/little-llama") -> Path:
    """`model` in the layout of the hub cache: links from a snapshot to blobs."""
    repository = hub / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / "abc"
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(model.iterdir())):
        shutil.copy(file, repository / "blobs" / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    return repository


def test_scan_reads_a_hub_cache(model: Path, tmp_path: Path) -> None:
    repository = hub_repository(tmp_path / "hub", model)
    old = shutil.copytree(repository / "snapshots" / "abc", repository / "snapshots" / "old", symlinks=True)
    os.utime(old, (1, 1))
    [entry] = scan([tmp_path / "hub"])
    assert (entry.name, entry.path) == ("someone/little-llama", str(repository / "snapshots" / "abc"))
    assert entry.fingerprint == fingerprint(model)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("old")
    assert scan([tmp_path / "hub"])[0].path.endswith("old")


def test_a_model_is_found_by_its_full_name_its_short_name_and_its_directory(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_name = "someone-with-a-long-name/Little-Llama-of-a-very-long-name-Instruct-4bit"
    repository = hub_repository(tmp_path / "hub", model, long_name)
    catalog = Catalog([tmp_path / "hub"])
    snapshot = str(repository / "snapshots" / "abc")
    for name in (long_name, long_name.partition("/")[2], snapshot, str(repository)):
        assert (catalog.find(name).name, catalog.find(name).path) == (long_name, snapshot)
    assert catalog.find(str(model)).name == "little-llama"
    monkeypatch.chdir(model.parent)
    assert catalog.find("little-llama").name == catalog.find("./little-llama").name == "little-llama"
    for name in ("no/such-model", "such-model", "./such-model", "~nobody-here/x", "/"):
        with pytest.raises((ModelNotFound, BadModel)):
            catalog.find(name)


def test_a_name_of_several_models_is_refused_with_all_of_them(model: Path, tmp_path: Path) -> None:
    hub_repository(tmp_path / "hub", model, "one/little-llama")
    hub_repository(tmp_path / "hub", model, "two/little-llama")
    catalog = Catalog([tmp_path / "hub"])
    assert catalog.find("little-llama").name == "one/little-llama"  # the same files twice
    make_model(tmp_path / "other", "llama", layers=2)
    hub_repository(tmp_path / "hub", tmp_path / "other", "ten/little-llama")
    with pytest.raises(UsageError, match=r"one/little-llama or ten/little-llama or two/little-llama"):
        catalog.find("little-llama")
    assert catalog.find("ten/little-llama").layers == 2
    shutil.copytree(tmp_path / "other", tmp_path / "more" / "little-llama")
    plain = Catalog([tmp_path / "hub", tmp_path / "more"])
    assert plain.find("little-llama").path == str(tmp_path / "more" / "little-llama")  # just this name


def test_what_cannot_be_used_is_listed_with_the_reason(model: Path, tmp_path: Path) -> None:
    root = tmp_path / "all"
    for name in ("a-good", "cut", "whisper", "bare"):
        shutil.copytree(model, root / name)
    (root / "cut" / SHARD).unlink()
    (root / "whisper" / "config.json").write_text('{"model_type": "whisper"}')
    (root / "bare" / "config.json").unlink()
    (root / "nothing").mkdir()
    loading = hub_repository(root, model, "someone/loading")
    (loading / "snapshots" / "abc" / SHARD).unlink()
    (loading / "blobs" / "x.incomplete").write_bytes(b"x")
    refused = root / "models--someone--refused" / "blobs"
    refused.mkdir(parents=True)
    (refused / "y.incomplete").touch()
    catalog = Catalog([root])
    good, *broken = catalog.survey()
    assert isinstance(good, ModelEntry)
    assert good.name == "a-good"
    reasons = {b.name: (b.problem.kind, b.problem.what) for b in broken if isinstance(b, BrokenModel)}
    assert reasons == {
        "bare": ("BadModel", "bare has no config.json."),
        "cut": ("BadModel", f"{SHARD} is missing in cut."),
        "someone/loading": ("BadModel", f"{SHARD} is missing in someone/loading. Its download is not finished."),
        "whisper": ("UnsupportedModel", "mlx-lm on this Mac does not know the architecture 'whisper' of whisper."),
    }
    with pytest.raises(UnsupportedModel, match="whisper"):
        catalog.find("whisper")
    with pytest.raises(BadModel, match=SHARD):
        catalog.find("loading")


HUGE = 10**400


def setting(**changes: object) -> Callable[[Path], object]:
    def edit(model: Path) -> None:
        config = json.loads((model / "config.json").read_text()) | changes
        (model / "config.json").write_text(json.dumps(config))

    return edit


def tensor_named(name: str, **changes: object) -> Callable[[Path], object]:
    """Rename its first tensor, with another description if given."""

    def edit(model: Path) -> None:
        (model / INDEX_NAME).unlink()
        file = weights(model)[0]
        whole = file.read_bytes()
        length = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8 : 8 + length])
        first = next(n for n in header if n != "__metadata__")
        header[name] = header.pop(first) | changes
        text = json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])

    return edit


def mapped_to(name: str) -> Callable[[Path], object]:
    return lambda model: edit_index(model, lambda weight_map: weight_map.update({"model.w": name}))


def linked_to_itself(model: Path) -> None:
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("config.json")


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(setting(num_hidden_layers=HUGE), id="layers"),
        pytest.param(setting(num_hidden_layers=-HUGE), id="no-layers"),
        pytest.param(setting(head_dim=HUGE), id="size"),
        pytest.param(setting(num_kv_heads=[HUGE]), id="heads-of-a-list"),
        pytest.param(setting(text_config={"num_hidden_layers": HUGE}), id="nested"),
        pytest.param(setting(model_type="a" * 5000), id="endless-architecture"),
        pytest.param(tensor_named(f"model.layers.{'9' * 5000}.w"), id="5000-digits"),
        pytest.param(tensor_named(f"model.layers.{'9' * 100}.w"), id="100-digits"),
        pytest.param(tensor_named("model.w", shape=[HUGE]), id="shape"),
        pytest.param(tensor_named("model.w", data_offsets=[0, HUGE]), id="offsets"),
        pytest.param(mapped_to("\udc80"), id="surrogate"),
        pytest.param(mapped_to("\ud800"), id="high-surrogate"),
        pytest.param(mapped_to("x" * 5000), id="endless-name"),
        pytest.param(linked_to_itself, id="loop"),
    ],
)
@pytest.mark.promise("P24")
def test_a_folder_of_nonsense_says_so_and_hides_no_other(
    model: Path, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    root = tmp_path / "all"
    for name in ("a-bad", "good"):
        shutil.copytree(model, root / name)
    spoil(root / "a-bad")
    catalog = Catalog([root])
    for _ in range(2):
        good, bad = catalog.survey()
        assert isinstance(good, ModelEntry)
        assert isinstance(bad, BrokenModel)
        assert msgspec.json.encode([good, bad])
        assert catalog.find("good") == good
        for wanted in ("a-bad", str(root / "a-bad")):
            with pytest.raises(ModelError) as refused:
                catalog.find(wanted)
            assert msgspec.json.encode(refused.value.problem)
            assert len(refused.value.what) < 700


def test_true_is_no_count_of_layers(model: Path) -> None:
    expected = Catalog([model]).find(str(model)).layers
    setting(num_hidden_layers=True)(model)
    assert type(found := Catalog([model]).find(str(model)).layers) is int
    assert found == expected


def test_a_folder_whose_name_is_no_text_is_listed_as_one_that_cannot_be_used(model: Path, tmp_path: Path) -> None:
    for name in (b"\xff", b"good"):
        shutil.copytree(model, tmp_path / "all" / os.fsdecode(name))
    good, bad = Catalog([tmp_path / "all"]).survey()
    assert (good.name, type(bad)) == ("good", BrokenModel)
    assert msgspec.json.encode([good, bad])


def test_settings_that_are_endless_and_of_no_use_here_do_not_matter(model: Path) -> None:
    setting(max_position_embeddings=HUGE, rope_scaling={"factor": HUGE, "original_max_position_embeddings": 8})(model)
    assert read_entry(model).context_max == DEFAULT_CONTEXT


def test_what_changes_is_read_anew_and_nothing_else(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog([model])
    [before] = catalog.survey()
    assert isinstance(before, ModelEntry)
    moved = (model / SHARD).rename(model.parent / "moved")
    assert isinstance(catalog.survey()[0], BrokenModel)
    moved.rename(model / SHARD)
    assert catalog.survey() == [before]
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 99}
    (model / "config.json").write_text(json.dumps(config))
    assert catalog.find("little-llama").context_max == 99
    assert catalog.layout(model).layers == 4
    monkeypatch.setattr("core.models.files.catalog.read_folder", lambda *_: pytest.fail("it was read again"))
    assert len(catalog.survey()) == 1


def test_what_was_read_is_kept_across_starts(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "catalog.json"
    [before] = Catalog([model], kept).survey()
    monkeypatch.setattr("core.models.files.catalog.read_folder", lambda *_: pytest.fail("it was read again"))
    catalog = Catalog([model], kept)
    assert catalog.survey() == [before]
    assert catalog.layout(model).layers == 4
    monkeypatch.undo()
    (model / SHARD).unlink()
    assert isinstance(Catalog([model], kept).survey()[0], BrokenModel)
    kept.write_text("{")
    assert isinstance(Catalog([model], kept).survey()[0], BrokenModel)


def test_of_a_model_that_changes_again_only_changed_files_are_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, read, real = Catalog([model]), list[str](), safetensors.header_bytes
    monkeypatch.setattr(safetensors, "header_bytes", lambda file: read.append(file.name) or real(file))  # type: ignore[func-returns-value]
    [before] = catalog.survey()
    for number in (1, 2):
        read.clear()
        os.utime(model / SHARD, (number, number))
        assert catalog.survey() == [before]
    assert read == [SHARD]


async def test_calls_at_the_same_time_share_a_survey_that_begins_after_them(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, real = list[int](), threading.Event(), Catalog.survey

    def slow(catalog: Catalog) -> Listed:
        begun.append(1)
        found = real(catalog)
        goes_on.wait()
        return found

    monkeypatch.setattr(Catalog, "survey", slow)
    models = LocalModels([model], tmp_path / "hashes")
    first = asyncio.create_task(models.survey())
    await until(lambda: begun == [1])
    others = [asyncio.create_task(models.survey()) for _ in range(3)]
    await asyncio.sleep(0)
    goes_on.set()
    assert {len(await each) for each in (first, *others)} == {1}
    assert len(begun) == 2


async def test_a_first_survey_that_takes_long_is_answered_with_what_it_has_found(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, real = threading.Event(), catalog_module._outcome
    make_model(model.parent / "other", "llama", layers=2)

    def slow(directory: Path, cache: HeaderCache | None) -> Any:
        if directory.name == "other":
            goes_on.wait()
        return real(directory, cache)

    monkeypatch.setattr(catalog_module, "_outcome", slow)
    monkeypatch.setattr(local_models, "SOON_S", 0.0)
    models = LocalModels([model.parent], tmp_path / "hashes")
    surveying = asyncio.create_task(models.survey())
    await until(lambda: bool(models._catalog.so_far))
    assert [each.name for each in await models.known()] == ["little-llama"]
    goes_on.set()
    assert len(await surveying) == len(await models.known()) == 2


def test_aliases_are_those_of_mlx_lm() -> None:
    assert ALIASES == mlx_lm.utils.MODEL_REMAPPING


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_CACHE_HOME": "/caches"},
        {"HF_HOME": "~/face"},
        {"HF_HOME": "/face", "HUGGINGFACE_HUB_CACHE": "/old"},
        {"HF_HOME": "/face", "HF_HUB_CACHE": "/$NAME/hub", "NAME": "x"},
    ],
)
def test_the_hub_cache_is_where_huggingface_hub_has_it(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = "import huggingface_hub.constants as c; print(c.HF_HUB_CACHE)"
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert str(hub_cache()) == theirs


def test_a_hub_snapshot_may_not_link_past_its_blobs(model: Path, tmp_path: Path) -> None:
    repository = hub_repository(tmp_path / "hub", model)
    link = repository / "snapshots" / "abc" / SHARD
    link.unlink()
    link.symlink_to(model / SHARD)
    assert scan([tmp_path / "hub"]) == []


def test_catalog_and_layout_import_no_mlx() -> None:
    code = "import core.models.files.layout, core.models.files.catalog, sys"
    code += "; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"mlx", "mlx_lm", "transformers", "numpy"} & set(loaded)


def test_a_config_of_a_million_lists_is_refused_before_they_are_made(tmp_path: Path) -> None:
    make_model(tmp_path / "m", "llama", layers=1)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | {"more": [[]] * MAX_CONFIG_VALUES}))
    with pytest.raises(BadModel, match="250,000 values"):
        read_folder(tmp_path / "m")
