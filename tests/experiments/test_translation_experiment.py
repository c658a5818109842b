"""The translation experiment end to end on tiny models, and the comparisons that its claims rest on."""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import cipher
import pytest
from scripts import command

run = command("translation")

from comparisons import comparisons, decide, paired_bootstrap  # noqa: E402
from systems import TABLES  # noqa: E402
from tables_page import TITLES, page, table_of  # noqa: E402

from maskropolis.training.parallel.options import ParallelOptions  # noqa: E402
from maskropolis.training.parallel.run import train_parallel  # noqa: E402

SENTENCES = 6
FOLDER = Path(run.__file__).parent


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Texts and two models of some steps, where the command would have put them."""
    work = tmp_path_factory.mktemp("translation")
    for split, count in (("train", 60), ("val", 8), (run.TEST, SENTENCES)):
        for language, side in zip(("de", "en"), cipher.sentences(count, seed=count, vocabulary=20), strict=True):
            (work / f"{split}.lc.norm.tok.{language}").write_text("\n".join(side) + "\n", encoding="utf-8")
    for kind in ("cmlm", "seq2seq"):
        options = ParallelOptions(
            kind, str(work / "train.lc.norm.tok.de"), str(work / "train.lc.norm.tok.en"),
            hold_out=5, steps=40, width=16,
            heads=2, feed_forward=16, encoder_layers=1, decoder_layers=1, vocabulary_size=200, tokens=200, longest=24,
        )  # fmt: skip
        train_parallel(options, work / f"de-en-{kind}")
    return work


def call(monkeypatch, job, *arguments):
    given = ["--data", str(job), "--work", str(job), "--out", str(job / "out"), "--threads", "1", "--pair", "de-en"]
    monkeypatch.setattr(sys, "argv", ["run.py", *given, *arguments])
    run.main()


@pytest.fixture
def short(monkeypatch):
    """The systems with few sweeps."""
    for table, sweeps in (("main", 1), ("paths", 3)):
        few = [
            replace(
                system,
                settings={**system.settings, "sweeps": sweeps} if "sweeps" in system.settings else system.settings,
            )
            for system in TABLES[table]
        ]
        monkeypatch.setitem(TABLES, table, few)


def test_tables_claims_and_figure(job, monkeypatch, short):
    for table in ("main", "paths"):
        call(monkeypatch, job, "table", table)
    entries = json.loads((job / "out" / "results.json").read_text())
    wanted = [system for name in ("main", "paths") for system in TABLES[name]]
    assert [entry["system"] for entry in entries] == [system.name for system in wanted]
    for entry, system in zip(entries, wanted, strict=True):
        assert entry["sentences"] == SENTENCES
        assert entry["signature"].startswith("maskropolis|model:de-en-") and str(job) not in json.dumps(entry)
        assert entry["versions"]["torch"] and entry["machine"]["cores"] and entry["training"]["steps"] == 40
        assert (entry["acceptance"] is not None) == (system.settings.get("decoder") == "mh" or "Gibbs" in system.name)
        texts = run.texts_of(job, "de-en", entry["table"], entry["system"]).read_text().splitlines()
        assert len(texts) == SENTENCES
    claims = json.loads((job / "out" / "claims.json").read_text())
    assert {one["claim"] for one in claims} == {
        "Metropolis–Hastings is above Mask-Predict", "Mask-Predict is above Gibbs", "raw is at least norm",
        "raw accepts more often", "low energy goes with high BLEU",
    }  # fmt: skip
    assert (job / "out" / "results.md").read_text() == page(entries, claims)
    assert (job / "out" / "bleu_against_energy.png").read_bytes().startswith(b"\x89PNG")


def test_training_sources_are_distilled_once(job, monkeypatch):
    source = job / "train.lc.norm.tok.de"
    kept = source.read_text(encoding="utf-8")
    source.write_text("\n".join(kept.splitlines()[:5]) + "\n", encoding="utf-8")
    call(monkeypatch, job, "distill")
    source.write_text(kept, encoding="utf-8")
    made = job / "de-en-distilled.en"
    assert len(made.read_text(encoding="utf-8").splitlines()) == 5
    monkeypatch.setattr(run.subprocess, "run", lambda *given, **more: pytest.fail("distilled again"))
    given = []
    monkeypatch.setattr(run, "train_parallel", lambda options, *rest, **more: given.append(options))
    (job / "de-en-cmlm" / "model.safetensors").rename(job / "kept")
    call(monkeypatch, job, "train", "--kind", "cmlm")
    call(monkeypatch, job, "train", "--kind", "cmlm", "--targets", "references")
    (job / "kept").rename(job / "de-en-cmlm" / "model.safetensors")
    made.unlink()
    assert [options.distill for options in given] == [str(made), None]


def test_the_tables_of_the_documentation_are_those_of_the_results():
    entries = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    text = (FOLDER.parents[1] / "docs" / "translation.md").read_text(encoding="utf-8")
    for pair in {entry["pair"] for entry in entries}:
        assert "\n".join(table_of(entries, "main", pair)) in text, pair
    claims = json.loads((FOLDER / "claims.json").read_text(encoding="utf-8"))
    assert (FOLDER / "results.md").read_text(encoding="utf-8") == page(entries, claims)


def test_every_table_has_a_title():
    assert TITLES.keys() == TABLES.keys()


def test_a_measured_system_is_not_measured_again(job, monkeypatch, short):
    call(monkeypatch, job, "table", "main")
    monkeypatch.setattr(run, "run", lambda *given: pytest.fail("measured again"))
    call(monkeypatch, job, "table", "main")


def test_a_system_under_two_names_is_run_once(job, monkeypatch):
    asked = []
    monkeypatch.setattr(run, "run", lambda chosen, pair, system: asked.append(system.name) or pytest.fail("ran"))
    one, two = (replace(TABLES["main"][0], name=name, table=name) for name in ("one", "two"))
    other = replace(two, name="three", table="three", sentences=2)
    monkeypatch.setattr(run, "TABLES", {"one": [one], "two": [two], "three": [other]})
    chosen = argparse.Namespace(work=job, seed=0)
    folder = job / "results" / "de-en"
    folder.mkdir(parents=True, exist_ok=True)
    first = {"table": "one", "system": "one", "bleu": 12.5, "chrf": 1, "settings": {"beam": 5}, "seed": 0}
    first["weights"] = run._weights(chosen, "de-en")
    (folder / "one-one.json").write_text(json.dumps(first))
    (folder / "one-one.txt").write_text("a b\n")
    run.measure(chosen, "de-en", two)
    made = json.loads((folder / "two-two.json").read_text())
    assert made == first | {"table": "two", "system": "two", "same_run_as": "one: one"}
    assert (folder / "two-two.txt").read_text() == "a b\n" and not asked
    for system, seed in ((other, 0), (two, 1), (replace(two, beam=4), 0)):
        with pytest.raises(pytest.fail.Exception):
            run.measure(argparse.Namespace(work=job, seed=seed), "de-en", system)
    (folder / "two-two.json").write_text(json.dumps(made | {"weights": {}}))
    (folder / "one-one.json").unlink()
    with pytest.raises(pytest.fail.Exception):
        run.measure(chosen, "de-en", two)
    (folder / "two-two.json").unlink()


def test_a_pair_that_was_measured_elsewhere_stays(job, monkeypatch, short, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    old = [{"pair": "fr-en", "table": "main", "system": "Gibbs from masks"}]
    (out / "results.json").write_text(json.dumps([*old, {"pair": "de-en", "table": "main", "system": "gone"}]))
    (out / "claims.json").write_text(json.dumps([{"pair": "fr-en", "claim": "kept"}]))
    seen = []
    monkeypatch.setattr(run, "page", lambda entries, claims: seen.append((entries, claims)) or "")
    monkeypatch.setattr(run, "draw_paths", lambda entries, path: None)
    call(monkeypatch, job, "figure", "--out", str(out))
    entries, claims = seen[0]
    assert [entry for entry in entries if entry["pair"] == "fr-en"] == old
    assert "gone" not in [entry["system"] for entry in entries] and claims[-1] == {"pair": "fr-en", "claim": "kept"}


def test_paired_bootstrap_tells_better_from_other():
    draw = random.Random(0)
    references = [" ".join(draw.choice("abcdefgh") for _ in range(12)) for _ in range(200)]

    def spoilt(share):
        return [" ".join("z" if draw.random() < share else w for w in line.split()) for line in references]

    good, bad = spoilt(0.05), spoilt(0.2)
    difference, p = paired_bootstrap(good, bad, references)
    assert difference > 20 and p < 0.01
    assert paired_bootstrap(bad, good, references)[0] == pytest.approx(-difference)
    alike = [paired_bootstrap(spoilt(0.2), spoilt(0.2), references)[1] for _ in range(8)]
    assert sum(p < 0.05 for p in alike) <= 3  # more in one of 2,700 seeds
    assert paired_bootstrap(bad, bad, references) == (0.0, 1.0)


def entry(system, **more):
    return {"pair": "de-en", "table": "main", "system": system} | more


def test_p_of_several_comparisons_are_corrected():
    claims = [{"p": p, "sign": sign} for p, sign in ((0.04, 1), (0.001, -1), (0.02, 1), (0.01, 1))]
    decide(claims)
    assert [one["p_corrected"] for one in claims] == [0.04, 0.004, 0.04, 0.03]
    assert [one["verdict"] for one in claims] == ["holds", "opposite", "holds", "holds"]
    decide(weak := [{"p": 0.03, "sign": 1}, {"p": 0.04, "sign": 1}])
    assert [one["p_corrected"] for one in weak] == [0.06, 0.06] and weak[0]["verdict"] == "undecided"


def test_verdicts():
    often = entry("MH raw from greedy", acceptance=0.5, acceptance_by_portion=[0.49, 0.5, 0.51])
    seldom = entry("MH norm from greedy", acceptance=0.3, acceptance_by_portion=[0.29, 0.3, 0.31])
    same = [f"{letter} b c d e" for letter in "abcdefgh"] * 4
    worse = [line.replace("c", "z") for line in same]

    def found(*entries, ends=(same, same)):
        given = comparisons(list(entries), lambda entry: same, lambda entry: ends, lambda pair: same)
        return [one for one in given if one["claim"] != "raw is at least norm"]

    def verdicts(*entries, **more):
        return [one["verdict"] for one in found(*entries, **more)]

    several = found(often, seldom, *(one | {"pair": "fr-en"} for one in (often, seldom)))
    assert [one["p_corrected"] for one in several] == [2 * one["p"] for one in several]  # two comparisons a pair
    assert verdicts(often, seldom) == ["holds"]
    swapped = [often | {"system": seldom["system"]}, seldom | {"system": often["system"]}]
    assert verdicts(*swapped) == ["opposite"]
    assert verdicts(often | {"acceptance_by_portion": [0.5]}, seldom) == ["undecided"]

    path = [{"sweep": n, "energy": 10.0 - n, "bleu": 20.0 + n} for n in range(9)]
    falling = {"pair": "de-en", "table": "paths", "system": "MH norm from greedy", "path": path}
    rising = falling | {"path": [point | {"energy": point["sweep"]} for point in path]}
    assert verdicts(falling, ends=(worse, same)) == ["holds"] and verdicts(falling, ends=(same, worse)) == ["opposite"]
    assert verdicts(rising, ends=(same, worse)) == ["holds"] and verdicts(falling) == ["undecided"]
    (one,) = found(falling, ends=(worse, same))
    assert one["rank_correlation"] == -1 and one["energy_change"] == -8 and one["value"] > 0
    (flat,) = found(falling | {"path": [point | {"bleu": 0.0} for point in path]})
    assert flat["rank_correlation"] is None
