"""Diagnostics: ArviZ's numbers, in the right places, and a verdict for every kind of run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import maskropolis
from maskropolis.convergence.diagnostics import Diagnosis, autocorrelation, diagnose, measure
from maskropolis.convergence.histories import histories
from maskropolis.convergence.inference_data import indicators, quiet_arviz, save_netcdf, to_arviz
from maskropolis.convergence.verdict import judge
from maskropolis.errors import InputError, RunError


def run(model: Any, **settings: Any) -> Any:
    given = {"length": 4, "chains": 4, "samples": 12, "thin": 1, "burn_in": 2, "seed": 3, "progress": False}
    return maskropolis.sample(model, **(given | settings))


@pytest.fixture(scope="module")
def samples(tiny_bert: Any) -> Any:
    return run(tiny_bert)


@pytest.fixture(scope="module")
def found(samples: Any) -> Diagnosis:
    return diagnose(samples)


def test_inference_data_holds_the_kept_states(samples: Any, tmp_path: Path) -> None:
    data = samples.to_arviz()
    assert dict(data.posterior.sizes) == {"chain": 4, "draw": 12, "position": 4}
    table = samples.to_pandas()
    for chain in range(4):
        kept = table[table["chain"] == chain].sort_values("step")["energy"].to_numpy()
        assert np.allclose(data.posterior["energy"].sel(chain=chain), kept)
    assert np.allclose(data.sample_stats["lp"], -data.posterior["energy"])
    assert float(data.sample_stats["acceptance_rate"].max()) <= 1
    assert np.allclose(data.posterior["agreement"], data.posterior["indicator"].mean("position"))
    save_netcdf(data, tmp_path / "run.nc")
    with quiet_arviz() as arviz:
        again = arviz.from_netcdf(str(tmp_path / "run.nc"))
        summary = arviz.summary(again, var_names=["energy"])
    assert np.allclose(again.posterior["energy"], data.posterior["energy"])
    assert again.posterior.attrs["signature"] == samples.signature
    assert "r_hat" in summary


def test_an_indicator_marks_the_most_frequent_token(samples: Any) -> None:
    history = histories(samples)[0]
    marks = indicators(history)
    for index, position in enumerate(history.positions):
        column = history.tokens[:, :, position]
        top = max(np.unique(column), key=lambda token: (column == token).sum())
        assert marks[:, :, index].sum() == (column == top).sum()


def test_numbers_are_those_of_arviz(samples: Any, found: Diagnosis) -> None:
    energy = found.starts[0].energy
    values = histories(samples)[0].energy
    with quiet_arviz() as arviz:
        assert energy is not None
        assert energy.r_hat == pytest.approx(float(arviz.rhat(values, method="rank")))
        assert energy.ess_bulk == pytest.approx(float(arviz.ess(values, method="bulk")))
        assert energy.ess_tail == pytest.approx(float(arviz.ess(values, method="tail")))
        assert energy.mcse == pytest.approx(float(arviz.mcse(values)))
    assert found.starts[0].autocorrelation[0] == pytest.approx(1)


def test_movement_agrees_with_the_trace(samples: Any, found: Diagnosis) -> None:
    trace = samples.trace().to_pandas()
    settled = trace[trace["step"] > samples.burn_in]
    moves = found.starts[0].movement
    assert moves.acceptance == pytest.approx(settled["accepted"].mean())
    for position, share in moves.by_position.items():
        touched = settled[[position in row for row in settled["positions"]]]
        assert share == pytest.approx(touched["accepted"].mean())
    assert moves.changed_per_sweep == pytest.approx(4 * settled["changed"].mean())
    assert moves.unique == len({tuple(record["token_ids"]) for record in samples})
    assert found.starts[0].ess_per_1000_rows == pytest.approx(
        1000 * found.starts[0].quantities[0].ess_bulk / settled["rows"].sum()
    )


def test_starts_are_judged_apart(tiny_bert: Any) -> None:
    mixed = run(tiny_bert, length=[2, 5], samples=5)
    diagnosis = diagnose(mixed)
    assert [start.label for start in diagnosis.starts] == ["2 free tokens", "5 free tokens"]
    assert [start.chains for start in diagnosis.starts] == [(0, 2), (1, 3)]
    with pytest.raises(InputError, match="2 different starts"):
        mixed.to_arviz()
    assert mixed.to_arviz(1).posterior.sizes["position"] == 5


def test_one_sample_a_chain_is_judged_by_its_steps(tiny_bert: Any) -> None:
    start = diagnose(run(tiny_bert, samples=1, thin=8)).starts[0]
    assert start.source == "steps"
    assert start.energy is not None
    assert start.energy.draws > 20


@pytest.mark.parametrize(
    ("settings", "words", "target"),
    [
        ({"kernel": "gibbs"}, "no declared target", "none"),
        ({"final_temperature": 0.2}, "annealed", "annealed"),
        ({"chains": 1}, "one chain", "exact"),
    ],
)
def test_the_verdict_says_what_kind_of_run_it_is(
    settings: dict[str, Any], words: str, target: str, tiny_bert: Any
) -> None:
    diagnosis = diagnose(run(tiny_bert, length=3, samples=10, **settings))
    assert words in diagnosis.verdict
    assert diagnosis.target == target
    assert diagnosis.converged is not True
    json.dumps(diagnosis.to_json(), allow_nan=False)


def test_verdicts_from_known_series() -> None:
    rng = np.random.default_rng(1)
    good = measure("energy", rng.normal(size=(4, 500)))
    apart = measure("energy", rng.normal(size=(4, 500)) + np.arange(4)[:, None])
    stuck = measure("energy", np.ones((4, 500)))
    few = measure("energy", rng.normal(size=(4, 3)))
    short = measure("energy", rng.normal(size=(4, 40)))
    assert judge("exact", 4, [good], 0.5).converged is True
    verdict = judge("exact", 4, [apart], 0.5)
    assert verdict.converged is False
    assert "R-hat" in verdict.words
    assert "not converged" in verdict.words
    assert "stuck" in judge("exact", 4, [stuck], 0.0).words
    assert judge("exact", 4, [few], 0.5).converged is None
    assert "effective draws" in judge("exact", 4, [short], 0.5).words or short.r_hat > 1.01
    assert judge("none", 4, [good], 1.0).converged is None
    frozen = measure("position 5", np.repeat([[0.0], [1.0], [1.0], [0.0]], 50, axis=1))
    assert frozen.r_hat == np.inf
    assert "infinite" in judge("exact", 4, [good, frozen], 0.5).words


def test_autocorrelation_of_white_noise_and_of_a_constant() -> None:
    curve = autocorrelation(np.random.default_rng(2).normal(size=(3, 400)))
    assert curve[0] == pytest.approx(1)
    assert max(map(abs, curve[1:])) < 0.2
    assert autocorrelation(np.ones((2, 50))) == ()


def test_the_command(tiny_bert: Any, tmp_path: Path) -> None:
    from maskropolis import cli

    folder, file, netcdf = tmp_path / "run", tmp_path / "d.json", tmp_path / "d.nc"
    run(tiny_bert, out=folder)
    arguments = ["diagnose", str(folder), "--json", str(file), "--netcdf", str(netcdf)]
    done = CliRunner().invoke(cli.application, arguments)
    assert done.exit_code == 0, done.output
    assert "R-hat" in done.output.splitlines()[0]
    assert "per 1,000 model rows" in done.output
    assert json.loads(file.read_text())["target"] == "exact"
    with quiet_arviz() as arviz:
        assert arviz.from_netcdf(str(netcdf)).posterior.sizes["draw"] == 12
    missing = CliRunner().invoke(cli.application, ["diagnose", str(tmp_path / "nothing")])
    assert isinstance(missing.exception, RunError)


def test_no_state_is_an_error_of_its_own(samples: Any) -> None:
    from maskropolis.chains.samples import Samples

    with pytest.raises(RunError, match="no step"):
        diagnose(Samples(samples.signature, samples.config))
    with pytest.raises(InputError, match="out of range"):
        to_arviz(samples, 7)
