"""The unconditional study: walks under a budget of rows, what is measured, the claims, and the command end to end."""

from __future__ import annotations

import itertools
import json
import math
import string

import causal
import numpy as np
import pytest
from scripts import EXPERIMENTS, command

run = command("unconditional")

from cells import CANDIDATES, SYSTEMS, Settings, grid  # noqa: E402
from claims import claims, difference  # noqa: E402
from measures import both_energies, convergence, jackknife_error  # noqa: E402
from pages import page  # noqa: E402
from sentences_of_length import by_length, divided  # noqa: E402
from study import pilot  # noqa: E402
from walks import Counted, half_masked, walk, write  # noqa: E402

from maskropolis.errors import InputError  # noqa: E402
from maskropolis.kernels.specification import build_kernel  # noqa: E402
from maskropolis.sampling import SamplingConfig, prepare  # noqa: E402
from maskropolis.targets.energy import ENERGIES, NORM, RAW  # noqa: E402

HERE = EXPERIMENTS / "unconditional"
KERNELS = [system for system in SYSTEMS if system.kernel not in (None, "best") and not system.annealed]


@pytest.mark.parametrize("system", KERNELS, ids=lambda system: system.name)
def test_a_walk_is_the_chain_of_the_package_stopped_when_its_rows_are_spent(tiny_bert, system):
    """The same states as the driver's, and the rows are those that the network saw."""
    config = SamplingConfig(
        lengths=(6,), chains=3, start="sampled", energy=system.energy, kernel=system.kernel, steps=200, seed=4
    )
    prepared = prepare(tiny_bert, config)
    counted = Counted(tiny_bert)
    kernel = build_kernel(system.kernel, ENERGIES[system.energy])
    found = walk(counted, kernel, prepared.state.sequences, 80, 5, 4, lambda share: 1.0)
    assert counted.rows == found.spent[-1] == found.rows[-1] >= 80 > found.spent[-2]
    made = int(found.steps[-1])
    ticks = {tick.step: tick for tick in itertools.islice(prepared.ticks(), made)}
    assert (np.diff(found.rows) >= 0).all() and (found.rows[1:] >= 16 * np.arange(1, 6)).all()
    for step, tokens in zip(found.steps[1:].tolist(), found.tokens[1:], strict=True):
        np.testing.assert_array_equal(tokens, ticks[step].state.sequences.tokens.numpy())
    np.testing.assert_allclose(found.energy[-1], ticks[made].state.energy.numpy())
    rate = np.mean([ticks[step].info.accepted.numpy() for step in range(1, made + 1)], axis=0)
    np.testing.assert_allclose(found.accepted, rate)


def test_a_chain_that_spends_nothing_ends(tiny_bert):
    start = tiny_bert.codec.encode(["the cat sat"] * 2)
    kernel = build_kernel("single-site:top_k=1", NORM)
    found = walk(tiny_bert, kernel, start, 40, 4, 0, lambda share: 1e-3)
    assert found.steps[-1] <= 40 and len(found.rows) == 5


def test_annealed_chains_are_told_how_much_is_spent(tiny_bert):
    shares: list[float] = []
    start = tiny_bert.codec.encode(["the cat sat on"] * 2)
    walk(tiny_bert, build_kernel("gibbs", NORM), start, 20, 2, 0, lambda share: shares.append(share) or 1.0)
    assert shares == [step / 10 for step in range(10)]


@pytest.mark.parametrize("rows", [12, 120])
def test_diffusion_spends_at_most_its_rows_and_leaves_no_mask(tiny_bert, rows):
    counted = Counted(tiny_bert)
    found = write(counted, tiny_bert.codec.blank([6] * 4), rows, 0, 1.0)
    assert counted.rows == found.rows <= rows and not (found.tokens == tiny_bert.mask_token).any()
    assert ("cap" in found.signature) == (rows > 24)


def test_half_of_a_text_is_masked_and_the_rest_stays(tiny_bert):
    whole = tiny_bert.codec.encode(["the cat sat on the mat a b c d"] * 50)
    half = half_masked(tiny_bert, whole, 0)
    hidden = half.tokens == tiny_bert.mask_token
    assert bool((half.tokens[~hidden] == whole.tokens[~hidden]).all()) and not bool(hidden[~whole.free].any())
    free = int(whole.free.sum())
    assert abs(float(hidden.sum()) / free - 0.5) < 4 * math.sqrt(0.25 / free)


def test_sentences_of_a_length_are_known_to_the_model_and_starts_are_not_references(tiny_bert):
    texts = [f"a cat sat on {letter}" for letter in string.ascii_lowercase] + [
        "a cat é sat on",
        "cat",
        "№ on the cat a",
    ]
    found = by_length(tiny_bert, texts, (5, 7), 100, 0)
    assert (
        found[7] == [] and 26 <= len(found[5]) <= 27 and found == by_length(tiny_bert, reversed(texts), (5, 7), 100, 0)
    )
    starts, reference = divided(found[5][:25], 5, 20, 5)
    assert len(starts) == len(reference) == 20 and not set(starts[:5]) & set(reference)
    starts, reference = divided(found[5][:16], 6, 20, 5)
    assert len(starts) == 16 and len(reference) == 10 and not set(starts[:6]) & set(reference)
    with pytest.raises(InputError, match="15 sentences of 5 tokens; expected at least 16"):
        divided(found[5][:15], 6, 20, 5)


def test_both_energies_are_those_of_the_package(tiny_bert):
    sequences = tiny_bert.codec.encode(["the cat sat", "a cat on", "the cat sat"])
    norm, raw = both_energies(tiny_bert, sequences)
    for found, energy in ((norm, NORM), (raw, RAW)):
        np.testing.assert_allclose(found, energy.evaluate(tiny_bert, sequences).energy.numpy(), rtol=1e-5)


def test_the_jackknife_error_of_a_mean_is_the_textbooks():
    values = np.random.default_rng(0).normal(size=9)
    left_out = np.array([np.delete(values, i).mean() for i in range(9)])
    assert jackknife_error(left_out) == pytest.approx(values.std(ddof=1) / 3)


def test_convergence_tells_mixed_chains_from_stuck_ones():
    noise = np.random.default_rng(1).normal(size=(6, 400))
    good, bad = convergence(noise, "steps"), convergence(noise + 5 * np.arange(6)[:, None], "steps")
    assert good["r_hat"] < 1.01 < 2 < bad["r_hat"] and good["ess"] > 1500 > 50 > bad["ess"]
    assert convergence(noise[:, :3], "steps")["ess"] is None


def _cell(system: str, **changes: object) -> dict:
    judged = {"log_by_chain": [4.0, 4.1, 4.2, 4.1]}
    return {
        "system": system, "length": 10, "start": "masks", "temperature": 1.0, "judge": judged,
        "acceptance_by_chain": [0.2, 0.21, 0.19, 0.2], "changed_by_chain": [40, 41, 42, 40], "processor_seconds": 2.0,
        "convergence": {"ess_per_second": 10.0, "log_ess_error": 0.1, "r_hat": 1.02},
        "energies": {"last_norm_by_chain": [30.0, 31.0, 29.0, 30.0], "last_raw_by_chain": [1.0, 2.0, 1.0, 2.0]},
    } | changes  # fmt: skip


def test_claims_hold_fail_or_stay_open():
    cells = [
        _cell("MH norm"),
        _cell("Gibbs", judge={"log_by_chain": [5.0, 5.1, 5.2, 5.1]}),
        _cell("MH raw", acceptance_by_chain=[0.1, 0.11, 0.09, 0.1], judge={"log_by_chain": [3.0, 5.0, 4.0, 7.0]}),
        _cell("MH norm, blocks of 2", convergence={"ess_per_second": 20.0, "log_ess_error": 0.1, "r_hat": 1.05}),
        _cell("MH norm, blocks of 4", convergence={"ess_per_second": None, "log_ess_error": None}),
    ]
    found = {claim["claim"]: claim for claim in claims(cells)}
    below = found["MH norm is below Gibbs in judge perplexity"]
    assert below["holds"] == 1 and below["cells"][0]["value"] == pytest.approx(math.exp(-1), rel=1e-4)
    assert found["MH raw is below Gibbs in judge perplexity"]["undecided"] == 1
    assert found["raw accepts more often than norm"]["opposite"] == 1
    faster = found["blocks of 2 mix faster per unit of time"]
    half = 1.96 * 0.1 * math.sqrt(2)
    assert faster["holds"] == 1 and faster["cells"][0]["low"] == pytest.approx(2 * math.exp(-half), rel=1e-4)
    assert "blocks of 4 mix faster per unit of time" not in found and "annealing lowers the norm energy" not in found
    assert found["blocks of 2 change more tokens"]["undecided"] == 1
    cells[3]["convergence"]["r_hat"] = 1.3
    assert {claim["claim"]: claim for claim in claims(cells)}[faster["claim"]]["undecided"] == 1


def test_welch_covers_the_truth_as_often_as_it_says():
    """Of 400 intervals at 95%, within four standard errors."""
    random = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        made = difference(random.normal(1, 1, 8).tolist(), random.normal(0, 2, 8).tolist(), holds=1)
        inside += made["low"] <= 1 <= made["high"]
    assert abs(inside / 400 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400)


def test_the_pilot_runs_every_candidate_and_takes_the_best_that_has_no_system(tiny_bert):
    settings = Settings(rows=120, chains=3, marks=2, kept=2, measured=1, curve=1)
    found = pilot(tiny_bert, settings, 5)
    assert [one["kernel"] for one in found["candidates"]] == list(CANDIDATES)
    assert all(one["rows"] >= 120 for one in found["candidates"])
    free = [one for one in found["candidates"] if one["kernel"] not in {system.kernel for system in SYSTEMS}]
    good = [one for one in free if one["r_hat"] is not None and one["r_hat"] < 1.2] or free
    assert {one["kernel"]: one for one in good}[found["best"]]["ess_per_1000_rows"] == max(
        one["ess_per_1000_rows"] for one in good
    )


def test_the_grid_is_what_the_study_names():
    whole = list(grid((10, 15, 20, 30), (10, 15, 20, 30), extra=True))
    assert len({cell.name for cell in whole}) == len(whole) == 4 * 2 * 2 * len(SYSTEMS)
    thin = list(grid((10, 15), (10,)))
    assert {(c.length, c.start, c.temperature) for c in thin} >= {(15, "masks", 1.0), (10, "text", 0.7)}
    assert (15, "text", 1.0) not in {(c.length, c.start, c.temperature) for c in thin}
    with pytest.raises(InputError, match="out of range"):
        Settings(marks=3, kept=4)


@pytest.fixture
def book(tmp_path):
    listed = [f"The cat sat {word} a {letter}." for letter in string.ascii_lowercase for word in ("on", "in")]
    (tmp_path / "book.txt").write_text("\n".join(listed))
    return str(tmp_path / "book.txt")


@pytest.fixture
def arguments(tmp_path, tiny_folder, book):
    small = {"rows": 90, "chains": 3, "marks": 4, "kept": 4, "measured": 4, "curve": 2, "curve-length": 7}
    return [
        *("--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--books", book),
        *("--model", str(tiny_folder), "--judge", str(causal.save(tmp_path / "judge"))),
        *("--lengths", "7", "--other-lengths", "", "--best", "informed"),
        *(part for name, value in small.items() for part in (f"--{name}", str(value))),
    ]


def test_the_command_fills_the_cells_once_and_draws_what_it_measured(tmp_path, arguments, capsys):
    run.main(["all", *arguments])
    results = json.loads((tmp_path / "out/results.json").read_text())
    shown = [system for system in SYSTEMS if not system.extra]
    assert [cell["system"] for cell in results["cells"]] == [system.name for system in shown]
    for cell, system in zip(results["cells"], shown, strict=True):
        assert cell["samples"] == 12 and cell["rows"] <= 90 + 3 * 7 and cell["judge"]["perplexity"]["value"] > 1
        assert (cell["rows"] >= 90) or system.kernel is None
        lines = (tmp_path / "work/samples").glob(f"7-masks-1-{system.name[:4].replace(' ', '-')}*.jsonl")
        assert all(len(file.read_text().splitlines()) == 12 for file in lines)
        if cell.get("curve"):
            assert len(cell["curve"]) == 3 and cell["curve"][0]["sweeps"] == 0
    names = [one["system"] for one in results["references"]["7"]]
    assert names == ["held-out sentences", "random tokens", "greedy fill"]
    assert (tmp_path / "out/results.md").read_text() == page(results)
    for name in ("over_sweeps.png", "over_rows.png"):
        assert (tmp_path / "out" / name).read_bytes()[:4] == b"\x89PNG"
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "work/cells").iterdir()}
    gone = tmp_path / "work/cells/7-masks-1-Gibbs.json"
    kept = json.loads(gone.read_text())
    gone.unlink()
    run.main(["run", *arguments])
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "work/cells").iterdir()}
    assert {file for file in after if after[file] != before[file]} == {gone}
    again = json.loads(gone.read_text())
    timed = ("seconds", "processor_seconds", "convergence")
    assert {k: v for k, v in again.items() if k not in timed} == {k: v for k, v in kept.items() if k not in timed}
    with pytest.raises(SystemExit) as stopped:
        run.main(["run", *arguments, "--rows", "91"])
    assert stopped.value.code == 2 and "name a new folder with --work" in capsys.readouterr().err


def test_some_systems_alone(tmp_path, arguments, capsys):
    run.main(["run", *arguments, "--only", "MH norm"])
    made = {file.stem for file in (tmp_path / "work/cells").glob("7-*.json")}
    assert made == {"7-masks-1-MH-norm"}
    with pytest.raises(SystemExit):
        run.main(["run", *arguments, "--only", "MH norn"])
    assert "did you mean 'MH norm'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("step", "changes", "said"),
    [
        ("table", {}, "holds no study"),
        ("figure", {}, "there is no"),
        ("run", {"--books": None}, "--books is missing"),
        ("run", {"--chains": "1"}, "out of range"),
        ("run", {"--lengths": "9"}, "the held-out books have 0 sentences of 9 tokens"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, arguments, capsys, step, changes, said):
    for name, value in changes.items():
        at = arguments.index(name)
        arguments[at : at + 2] = [] if value is None else [name, value]
    with pytest.raises(SystemExit) as stopped:
        run.main([step, *arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and said in error and error.count("\n") == 1


def test_the_committed_page_is_that_of_the_committed_results():
    results = json.loads((HERE / "results.json").read_text())
    assert (HERE / "results.md").read_text() == page(results)
