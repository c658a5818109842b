"""The certificate: complete, right about right kernels, and not fooled by wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from maskropolis.errors import InputError
from maskropolis.kernels import KERNELS, State, register
from maskropolis.kernels.single_site import SingleSite
from maskropolis.proof.certificate import TOLERANCE, Certificate, certify, certify_all, specifications
from maskropolis.proof.situations import Situation, real_situation, tabular_situations
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, Energy


@pytest.fixture(scope="module")
def situations() -> list[Situation]:
    return list(tabular_situations())


@pytest.fixture
def registry() -> Iterator[dict[str, Any]]:
    """The registry, as it was afterwards."""
    before = dict(KERNELS)
    yield KERNELS
    KERNELS.clear()
    KERNELS.update(before)


def always_accepts() -> type:
    @register("wrong-ratio", exact=True)
    @dataclass(frozen=True)
    class WrongRatio(SingleSite):
        """Single-site Metropolis–Hastings at half the temperature: a wrong ratio, a plausible chain."""

        variants = ()
        energy: Energy = NORM

        def step(self, model: Any, state: State, temperature: Any, uniforms: torch.Tensor) -> Any:
            return super().step(model, state, temperature / 2, uniforms)

    return WrongRatio


def never_moves() -> type:
    @register("never-moves", exact=True)
    @dataclass(frozen=True)
    class NeverMoves(SingleSite):
        variants = ()
        energy: Energy = NORM

        def step(self, model: Any, state: State, temperature: Any, uniforms: torch.Tensor) -> Any:
            _, info = super().step(model, state, temperature, uniforms)
            return state, info

    return NeverMoves


def breaks() -> type:
    @register("breaks", exact=True)
    @dataclass(frozen=True)
    class Breaks(SingleSite):
        variants = ()
        energy: Energy = NORM

        def init(self, model: Any, sequences: Sequences) -> State:
            raise RuntimeError("no such luck")

    return Breaks


def test_every_registered_kernel_is_certified(situations: list[Situation], registry: dict[str, Any]) -> None:
    """Discovered, not listed: a kernel registered a moment ago is there as well."""
    always_accepts()
    small = [Situation(s.model, s.states, s.temperatures[:1], s.products) for s in situations[:1]]
    found = list(certify_all(small, energies=["norm"]))
    assert {certificate.kernel.partition(":")[0] for certificate in found} == set(registry)
    assert {certificate.kernel for certificate in found} == set(specifications())
    wrong = [certificate.kernel for certificate in found if not certificate.holds]
    assert wrong == ["wrong-ratio"]


@pytest.mark.parametrize("name", sorted(name for name, kind in KERNELS.items() if kind.exact))
def test_exact_kernels_hold_with_the_raw_energy_and_another_temperature(name: str, situations: list[Situation]) -> None:
    certificate = certify(name, situations[1], "raw", 0.6)
    assert certificate.holds, certificate
    assert certificate.invariance_error < TOLERANCE
    assert certificate.total_variation < TOLERANCE
    assert certificate.spectral_gap > 1e-4


@pytest.mark.parametrize(
    ("make", "name", "what"),
    [(always_accepts, "wrong-ratio", "error"), (never_moves, "never-moves", "classes"), (breaks, "breaks", "problem")],
)
def test_a_wrong_kernel_is_caught(
    make: Any, name: str, what: str, situations: list[Situation], registry: dict[str, Any]
) -> None:
    make()
    certificate = certify(name, situations[0], "norm")
    assert not certificate.holds
    if what == "error":
        assert certificate.invariance_error > 1e-3
        assert certificate.total_variation > 1e-2
    elif what == "classes":
        assert certificate.invariance_error < TOLERANCE  # it does leave π invariant
        assert certificate.classes == certificate.states
        assert certificate.spectral_gap == 0
    else:
        assert "no such luck" in certificate.problem


def test_gibbs_is_measured_but_not_failed(situations: list[Situation]) -> None:
    certificate = certify("gibbs", situations[1], "norm")
    assert not certificate.exact
    assert certificate.holds
    assert certificate.total_variation > 0.05


def test_top_k_splits_the_space_and_still_leaves_the_target_invariant(situations: list[Situation]) -> None:
    certificate = certify("single-site:top_k=2", situations[0], "norm")
    assert certificate.classes > 1
    assert certificate.spectral_gap == 0
    assert certificate.total_variation < TOLERANCE  # the invariant distribution that is reached from π is π
    assert certificate.holds


def test_scans_are_certified_step_by_step_and_as_a_whole(situations: list[Situation]) -> None:
    free = situations[1].free
    assert certify("single-site", situations[1], "norm").steps == 1
    assert certify("single-site:scan=left-to-right", situations[1], "norm").steps == free
    assert certify("single-site:scan=back-and-forth", situations[1], "norm").steps == 2 * free


def test_a_real_model_on_a_template(tiny_bert: Any) -> None:
    situation = real_situation(tiny_bert, "the [MASK] [MASK]", size=3)
    assert len(situation.states) == 9
    certificate = certify("single-site", situation, "norm")
    assert certificate.model == "tiny-bert"
    assert certificate.holds
    assert certificate.total_variation < TOLERANCE


def test_the_template_must_be_small(tiny_bert: Any) -> None:
    with pytest.raises(InputError, match="two or three"):
        real_situation(tiny_bert, "[MASK]")
    with pytest.raises(InputError, match="2 to 6"):
        real_situation(tiny_bert, None, size=9)
    with pytest.raises(InputError, match="not one token"):
        real_situation(tiny_bert, None, tokens=["no such piece"])


def test_json_has_no_nan() -> None:
    values = Certificate("k", "m", "norm", 1.0, True, problem="x").to_json()
    assert values["invariance_error"] is None
    json.dumps(values, allow_nan=False)


def test_verify_writes_json_and_exits_with_1_for_a_wrong_kernel(
    tmp_path: Path, registry: dict[str, Any], tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from maskropolis import cli

    for name in set(registry) - {"single-site", "gibbs"}:
        del registry[name]
    monkeypatch.setattr(SingleSite, "variants", ())
    file = tmp_path / "certificate.json"
    arguments = ["verify", "--model", str(tiny_folder), "--json", str(file)]
    done = CliRunner().invoke(cli.application, arguments)
    assert done.exit_code == 0, done.output
    assert "discrepancy" in done.output
    entries = json.loads(file.read_text())
    keys = {"kernel", "model", "energy", "exact", "invariance_error", "total_variation", "spectral_gap"}
    assert all(keys <= set(entry) for entry in entries)
    assert {entry["energy"] for entry in entries} == {"raw", "norm"}
    assert any(not entry["model"].startswith("tabular") for entry in entries)

    always_accepts()
    failed = CliRunner().invoke(cli.application, [*arguments, "--tables-only", "--overwrite"])
    assert failed.exit_code == 1
    assert "FAILED wrong-ratio" in failed.output


@pytest.mark.slow
def test_the_command_itself(tiny_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "maskropolis.cli", "verify", "--model", str(tiny_folder)]
    done = subprocess.run([*command, "--json", str(tmp_path / "all.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    entries = json.loads((tmp_path / "all.json").read_text())
    assert {entry["kernel"].partition(":")[0] for entry in entries} == set(KERNELS)
    assert all(entry["invariance_error"] < TOLERANCE for entry in entries if entry["exact"])
