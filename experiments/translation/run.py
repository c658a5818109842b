"""The translation experiments on Multi30k, one command a step; every step goes on where it was stopped.

    python experiments/translation/run.py train   --data DIR --work DIR --pair de-en --kind seq2seq --minutes 24
    python experiments/translation/run.py distill --data DIR --work DIR --pair de-en
    python experiments/translation/run.py train   --data DIR --work DIR --pair de-en --kind cmlm --minutes 100
    python experiments/translation/run.py table main --data DIR --work DIR --pair de-en
    python experiments/translation/run.py figure  --data DIR --work DIR
    python experiments/translation/run.py all     --data DIR --work DIR

The conditional masked model is trained on the autoregressive one's translations of the training sources (`distill`, as
in Ghazvininejad et al. 2019), or with --targets references on the text itself.

DIR of --data holds `train|val|test_2016_flickr.lc.norm.tok.de|en|fr[.gz]`. --work keeps models, translations and the
result of every system; results.json, claims.json, results.md and the figure are written to --out, by default the folder
of this file. The text is for research: models are trained and measured on it, and not published.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import common
from comparisons import comparisons
from paths import draw_paths
from systems import BOTH, TABLES, System
from tables_page import page

from maskropolis.records import read_lines
from maskropolis.searching.hypotheses import Work
from maskropolis.searching.quality import quality
from maskropolis.searching.rescoring import NBest, Scored, with_energies
from maskropolis.targets.energy import ENERGIES
from maskropolis.training.parallel.options import KINDS, ParallelOptions
from maskropolis.training.parallel.run import train_parallel
from maskropolis.translation import Line, load_translator, make_decoding, signature, translate_lines

HERE = Path(__file__).parent
TEST = "test_2016_flickr"
TARGETS = ("distilled", "references")
NOTE = "Multi30k task 1: captions descend from Flickr30k, for research; the weights are not to be published."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["train", "distill", "table", "figure", "all"])
    parser.add_argument("table", nargs="?", choices=list(TABLES), default="main")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--pair", choices=BOTH)
    parser.add_argument("--kind", choices=KINDS, help="of model to train; default: both")
    parser.add_argument("--targets", choices=TARGETS, default=TARGETS[0], help="that cmlm is trained on")
    parser.add_argument("--minutes", type=float, default=100, help="of training, for each model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    pairs = [chosen.pair] if chosen.pair else list(BOTH)
    for pair in pairs:
        if chosen.step == "distill":
            distill(chosen, pair)
        if chosen.step in ("train", "all"):
            for kind in [chosen.kind] if chosen.kind else reversed(KINDS):
                train(chosen, pair, kind)
    if chosen.step in ("table", "all"):
        for table in TABLES if chosen.step == "all" else [chosen.table]:
            for pair in pairs:
                for system in TABLES[table]:
                    if pair in system.pairs:
                        measure(chosen, pair, system)
    if chosen.step in ("table", "figure", "all"):
        report(chosen)


def file(chosen: argparse.Namespace, split: str, language: str) -> str:
    """The file of a split, packed or not."""
    plain = chosen.data / f"{split}.lc.norm.tok.{language}"
    packed = plain.with_name(plain.name + ".gz")
    return str(plain if plain.is_file() else packed)


def model_folder(chosen: argparse.Namespace, pair: str, kind: str) -> Path:
    return chosen.work / f"{pair}-{kind}"


def train(chosen: argparse.Namespace, pair: str, kind: str) -> None:
    """One model, unless it is finished; a started one goes on."""
    folder = model_folder(chosen, pair, kind)
    if (folder / "model.safetensors").is_file():
        print(f"{folder} is trained")
        return
    source, target = pair.split("-")
    options = ParallelOptions(
        kind, file(chosen, "train", source), file(chosen, "train", target),
        distill=str(distill(chosen, pair)) if kind == "cmlm" and chosen.targets == "distilled" else None,
        valid_source=file(chosen, "val", source), valid_target=file(chosen, "val", target),
        minutes=chosen.minutes, seed=chosen.seed, data_note=NOTE, checkpoint_every=200, dropout=0.2,
        copies=2 if kind == "cmlm" else 1,
    )  # fmt: skip
    started = (folder / "training.json").is_file()
    result = train_parallel(options, folder, resume=started, command=tuple(sys.argv))
    if result is not None:
        print(f"{folder}: BLEU {result.quality.bleu:.2f} on validation pairs")


def distill(chosen: argparse.Namespace, pair: str) -> Path:
    """The autoregressive model's translations (beam 5) of the training sources, made where they are not there."""
    source, target = pair.split("-")
    made = chosen.work / f"{pair}-distilled.{target}"
    if not made.is_file():
        command = [sys.executable, "-m", "maskropolis", "translate", file(chosen, "train", source), "--beam", "5"]
        command += ["--model", str(model_folder(chosen, pair, "seq2seq")), "-o", str(made)]
        going_on = ["--resume"] if made.with_name(made.name + ".partial").is_file() else []
        subprocess.run([*command, *going_on], check=True)
    return made


def measure(chosen: argparse.Namespace, pair: str, system: System) -> None:
    """Translate the test set by one system, unless its result is there, and put it into results.json."""
    folder = chosen.work / "results" / pair
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{system.table}-{_plain(system.name)}.json"
    if _stored(chosen, pair, system, system) is None:
        common.write_json(kept, _elsewhere(chosen, pair, system) or run(chosen, pair, system))
    result = json.loads(kept.read_text(encoding="utf-8"))
    print(f"{pair}  {system.name}: BLEU {result['bleu']:.2f}, chrF {result['chrf']:.2f}", flush=True)


def _stored(chosen: argparse.Namespace, pair: str, system: System, other: System) -> dict[str, Any] | None:
    """The result under the name of `other`, if it is there and `system` would be run as it was, on the same models."""
    kept = chosen.work / "results" / pair / f"{other.table}-{_plain(other.name)}.json"
    if not kept.is_file():
        return None
    result: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    now = {"settings": _settings(system), "seed": chosen.seed, "weights": _weights(chosen, pair)}
    same = all(result.get(key) == value for key, value in now.items())
    return result if same and system.sentences in (None, result.get("sentences")) else None


def _elsewhere(chosen: argparse.Namespace, pair: str, system: System) -> dict[str, Any] | None:
    """The result of the same system under another name, in another table, if it is there."""
    for other in (one for table in TABLES.values() for one in table):
        alike = replace(other, table=system.table, name=system.name, pairs=system.pairs) == system
        if alike and (result := _stored(chosen, pair, system, other)):
            texts = texts_of(chosen.work, pair, other.table, other.name).read_text(encoding="utf-8")
            texts_of(chosen.work, pair, system.table, system.name).write_text(texts, encoding="utf-8")
            return result | {
                "table": system.table,
                "system": system.name,
                "same_run_as": f"{other.table}: {other.name}",
            }
    return None


def _settings(system: System) -> dict[str, Any]:
    return system.settings or {"beam": system.beam}


def _weights(chosen: argparse.Namespace, pair: str) -> dict[str, str]:
    """Digests of both models: one of them translates, and energies are those of the conditional one."""
    files = {kind: model_folder(chosen, pair, kind) / "model.safetensors" for kind in KINDS}
    return {kind: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for kind, path in files.items()}


def run(chosen: argparse.Namespace, pair: str, system: System) -> dict[str, Any]:
    """One entry of results.json."""
    source, target = pair.split("-")
    sources = [text for _, text in read_lines(file(chosen, TEST, source))][: system.sentences]
    references = [text for _, text in read_lines(file(chosen, TEST, target))][: system.sentences]
    kind = "cmlm" if system.beam is None else "seq2seq"
    folder = model_folder(chosen, pair, kind)
    model: Any = load_translator(str(folder), beam=system.beam or 1)
    decoding = make_decoding(**system.settings, seed=chosen.seed)
    lines = [Line(n, text, f"line {n}") for n, text in enumerate(sources, start=1)]
    work, portions, path = Work(), list[float | None](), list[tuple[int, int, str, float]]()
    watch = (lambda line, sweep, c: path.append((sweep, line.number, c.text, c.energy))) if system.path else None

    def observe(some: Work) -> None:
        work.add(some)
        portions.append(some.acceptance)

    began = time.perf_counter()
    found = [one.text for one in translate_lines(lines, model, decoding, observe=observe, on_sweep=watch)]
    seconds = time.perf_counter() - began
    made = {
        **scores(found, references, signature(model, decoding).replace(str(folder), folder.name)),
        **energies(chosen, pair, sources, found),
        "acceptance": work.acceptance,
        "mobility": work.mobility,
        "acceptance_by_portion": [rate for rate in portions if rate is not None],
        "rows_per_sentence": work.rows / len(sources) or None,
        "seconds_per_sentence": seconds / len(sources),
        "sentences": len(sources),
        "settings": _settings(system),
        "weights": _weights(chosen, pair),
        "seed": chosen.seed,
        "training": training(folder),
        **common.circumstances(),
    }
    if path:
        made["path"] = over_sweeps(path, references)
        for end, sweep in (("start", 0), ("end", made["path"][-1]["sweep"])):
            there = sorted((line, text) for at, line, text, _ in path if at == sweep)
            write_lines(texts_of(chosen.work, pair, system.table, f"{system.name} {end}"), [text for _, text in there])
    write_lines(texts_of(chosen.work, pair, system.table, system.name), found)
    return {"pair": pair, "table": system.table, "system": system.name, **made}


def training(folder: Path) -> dict[str, Any]:
    """How much of what the model saw."""
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    return {
        "tokens": record["tokens"], "steps": record["step"], "minutes": round(record["seconds"] / 60, 1),
        "targets": TARGETS[0 if record["options"]["distill"] else 1],
    }  # fmt: skip


def texts_of(work: Path, pair: str, table: str, name: str) -> Path:
    """The file of a system's translations."""
    return work / "results" / pair / f"{table}-{_plain(name)}.txt"


def scores(found: list[str], references: list[str], made_by: str) -> dict[str, Any]:
    """BLEU and chrF as published systems report them, and of running text."""
    tokenised, running = quality(found, references), quality(found, references, "detokenised")
    return {
        "bleu": tokenised.bleu, "chrf": tokenised.chrf, "signature": f"{made_by}|{tokenised.signature}",
        "bleu_detokenised": running.bleu, "chrf_detokenised": running.chrf,
        "signature_detokenised": running.signature,
    }  # fmt: skip


def energies(chosen: argparse.Namespace, pair: str, sources: list[str], found: list[str]) -> dict[str, float | None]:
    """Mean energies of translations under the conditional model, whatever found them; empty ones have none."""
    model: Any = load_translator(str(model_folder(chosen, pair, "cmlm")))
    made: dict[str, float | None] = {}
    lists = [NBest(n, s, [Scored(t)] if t else []) for n, (s, t) in enumerate(zip(sources, found, strict=True), 1)]
    for name, energy in ENERGIES.items():
        scored = [one.candidates[0] for one in with_energies(lists, model, energy) if one.candidates]
        made[f"energy_{name}"] = _mean([c.energy for c in scored if c.energy is not None])
        made[f"energy_{name}_per_token"] = _mean(
            [c.energy / c.tokens for c in scored if c.energy is not None and c.tokens]
        )
    return made


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def over_sweeps(path: list[tuple[int, int, str, float]], references: list[str]) -> list[dict[str, float]]:
    """BLEU and mean energy of where the chains are, after each sweep."""
    made = []
    for sweep in sorted({entry[0] for entry in path}):
        here = sorted((entry for entry in path if entry[0] == sweep), key=lambda entry: entry[1])
        texts, wanted = [entry[2] for entry in here], [references[entry[1] - 1] for entry in here]
        energy = statistics.fmean(entry[3] for entry in here)
        made.append({"sweep": sweep, "bleu": quality(texts, wanted).bleu, "energy": energy})
    return made


def report(chosen: argparse.Namespace) -> None:
    """results.json, claims.json, results.md and the figure from the results of all systems so far."""
    entries = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(chosen.work.glob("results/*/*.json"))]
    here = {entry["pair"] for entry in entries}
    entries += [entry for entry in _published(chosen, "results.json") if entry["pair"] not in here]
    order = {(s.table, s.name): i for i, s in enumerate(s for table in TABLES.values() for s in table)}
    entries.sort(key=lambda e: (e["pair"], order.get((e["table"], e["system"]), len(order))))

    def texts(entry: dict[str, Any]) -> list[str]:
        return _lines(texts_of(chosen.work, entry["pair"], entry["table"], entry["system"]))

    def ends(entry: dict[str, Any]) -> tuple[list[str], list[str]]:
        first, last = (
            _lines(texts_of(chosen.work, entry["pair"], entry["table"], f"{entry['system']} {end}"))
            for end in ("start", "end")
        )
        return first, last

    def references(pair: str) -> list[str]:
        return [text for _, text in read_lines(file(chosen, TEST, pair.split("-")[1]))]

    claims = comparisons([entry for entry in entries if entry["pair"] in here], texts, ends, references)
    claims += [claim for claim in _published(chosen, "claims.json") if claim["pair"] not in here]
    chosen.out.mkdir(parents=True, exist_ok=True)
    common.write_json(chosen.out / "results.json", entries)
    common.write_json(chosen.out / "claims.json", claims)
    (chosen.out / "results.md").write_text(page(entries, claims), encoding="utf-8")
    draw_paths(entries, chosen.out / "bleu_against_energy.png")


def _published(chosen: argparse.Namespace, name: str) -> list[dict[str, Any]]:
    """What --out holds from before: pairs whose work is not here stay as they are."""
    path = chosen.out / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


if __name__ == "__main__":
    main()
