"""Names that arrive in a file stay in their folder: no way up, no link out, no device."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import maskropolis
from maskropolis.errors import MaskropolisError, RunError
from maskropolis.records import open_output
from maskropolis.records.files import checksum_of
from maskropolis.records.inside import inside, is_plain_name


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/dev/zero", "", ".", "a/./b", "C:x", "\\\\host\\x", "a\\..\\x", "a\0b", None, 7]
)
def test_names_that_leave(name: Any, tmp_path: Path) -> None:
    assert not is_plain_name(name)
    with pytest.raises(RunError):
        inside(tmp_path, name)


def test_names_that_stay(tmp_path: Path) -> None:
    assert inside(tmp_path, "samples/part-1.parquet") == tmp_path / "samples/part-1.parquet"


def test_links_and_devices(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").symlink_to("/tmp")
    for name in ("link", "pipe", "folder/x"):
        with pytest.raises(RunError, match=r"symbolic link|pipe"):
            inside(tmp_path, name)


@pytest.fixture
def run(tmp_path: Path, tiny_bert: Any) -> Path:
    maskropolis.sample(tiny_bert, length=3, chains=2, steps=6, out=tmp_path / "run", checkpoint_every=2)
    return tmp_path / "run"


def everything(folder: Path, model: Any) -> list[str]:
    """What opening, reading, going on with and replacing the run say, one line each."""
    said = []
    for work in (
        lambda: maskropolis.open_run(folder).samples(),
        lambda: maskropolis.resume(folder, steps=9, model=model),
        lambda: maskropolis.sample(model, length=3, chains=2, steps=6, out=folder, overwrite=True),
    ):
        try:
            work()
        except MaskropolisError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("name", ["samples", "trace", "checkpoint"])
def test_a_part_of_a_run_that_is_a_link(name: str, run: Path, tiny_bert: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (run / name).rename(elsewhere)
    (run / name).symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    said = everything(run, tiny_bert)
    assert len(said) == 3 and all("symbolic link" in line for line in said)
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before


@pytest.mark.parametrize("forged", ["../secret.parquet", "/dev/zero", "samples/../../secret.parquet"])
def test_forged_names_of_parts(forged: str, run: Path, tiny_bert: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.parquet").write_bytes(b"secret")
    for path in (run / "checkpoint").glob("*.json"):
        content = json.loads(path.read_text())
        del content["sha256"]
        content["parts"][0]["file"] = forged
        path.write_text(json.dumps(content | {"sha256": checksum_of(content)}))
    assert maskropolis.open_run(run).checkpoint is None
    resumed = maskropolis.resume(run, model=tiny_bert)  # begins anew, as after any damage
    assert resumed.status == "finished" and any("damaged" in note for note in resumed.notices)
    assert (tmp_path / "secret.parquet").read_bytes() == b"secret"


def test_a_part_that_is_a_link_to_a_device(run: Path, tiny_bert: Any) -> None:
    part = next((run / "samples").iterdir())
    part.unlink()
    part.symlink_to("/dev/zero")
    with pytest.raises(RunError, match="symbolic link"):
        maskropolis.open_run(run).samples()
    assert maskropolis.resume(run, model=tiny_bert).status == "finished"
    assert not part.is_symlink()


def test_run_json_that_never_ends(run: Path) -> None:
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")
    with pytest.raises(RunError, match="pipe"):
        maskropolis.open_run(run)


def test_nothing_is_written_through_a_partial_link(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    (tmp_path / "out.jsonl.partial").symlink_to(target)
    for overwrite in (False, True):
        with (
            pytest.raises(MaskropolisError, match="symbolic link"),
            open_output(str(tmp_path / "out.jsonl"), overwrite),
        ):
            pass
    assert target.read_text() == "kept"


def test_an_index_that_names_weights_elsewhere(tiny_folder: Path, tmp_path: Path) -> None:
    for path in tiny_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"a": "../model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(MaskropolisError, match="not in its folder"):
        maskropolis.load(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(MaskropolisError, match="no regular file"):
        maskropolis.load(tmp_path)


def test_a_training_folder_with_a_link(tiny_folder: Path, tmp_path: Path) -> None:
    from maskropolis.training.output import claimed

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "training.json").write_text("{}")
    (tmp_path / "out" / "work").symlink_to(tiny_folder)
    for flags in ((True, False), (False, True)):
        with pytest.raises(RunError, match="symbolic link"), claimed(tmp_path / "out", *flags):
            pass
    assert list(tiny_folder.iterdir())
