"""Runs the benchmarks whose names are given, or all: `python -m benchmarks [--list] [NAME ...]`."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import benchmarks
from benchmarks import harness


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; default: all")
    parser.add_argument("--list", action="store_true", help="show the names and goals")
    arguments = parser.parse_args()
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"benchmarks.{module.name}")
    if arguments.list:
        for known in harness.BENCHMARKS.values():
            print(f"{known.name}  goal {known.goal} {known.unit}")
        return 0
    unknown = sorted(set(arguments.names) - set(harness.BENCHMARKS))
    if unknown:
        print(f"error: no benchmark '{unknown[0]}'; known: {', '.join(harness.BENCHMARKS)}", file=sys.stderr)
        return 2
    results = []
    for name in arguments.names or harness.BENCHMARKS:
        result = harness.BENCHMARKS[name].run()
        print(f"{name}: {result.value:g} {result.unit} (goal {result.goal}, {'met' if result.met else 'NOT met'})")
        results.append(result)
        harness.merge([result])
    return 0


if __name__ == "__main__":
    sys.exit(main())
