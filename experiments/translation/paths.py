"""The figure: BLEU against energy over the sweeps of chains that start from a greedy fill."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw_paths(entries: list[dict[str, Any]], picture: Path) -> bool:
    """A panel for each pair, a line a system, from the start of its chains to their end; False if no path was measured.

    Energies are those that each system's own target sees, so raw and norm have axes of their own.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    entries = [entry for entry in entries if entry.get("path")]
    if not entries:
        return False
    kinds = list(dict.fromkeys(_kind(entry) for entry in entries))
    figure, panels = plt.subplots(1, len(kinds), figsize=(5.4 * len(kinds), 4.6), squeeze=False, sharey=True)
    for panel, kind in zip(panels[0], kinds, strict=True):
        for entry in (entry for entry in entries if _kind(entry) == kind):
            energy, bleu = ([point[key] for point in entry["path"]] for key in ("energy", "bleu"))
            (line,) = panel.plot(energy, bleu, marker=".", label=f"{entry['pair']}, {entry['system']}")
            panel.annotate("start", (energy[0], bleu[0]), color=line.get_color(), fontsize=8)
        panel.set_xlabel(f"mean {kind} energy of a sentence")
        panel.legend(frameon=False, fontsize=8)
        panel.invert_xaxis()
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("BLEU (tokenised, lower-cased)")
    figure.suptitle("Over the sweeps, a point each")
    figure.tight_layout()
    figure.savefig(picture, dpi=130)
    plt.close(figure)
    return True


def _kind(entry: dict[str, Any]) -> str:
    return str(entry["settings"].get("energy", "norm"))
