"""The two tables that a run leaves: kept states, and the trace of every step of every chain.

`SAMPLES`: one row a kept state. `TRACE`: one row a step and chain, for diagnostics. In the trace, `rows` and `seconds`
are the chain's equal share of what the step cost all chains together, so that sums over the table are totals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from maskropolis.chains.driver import Tick

SAMPLES = pa.schema(
    [
        ("chain", pa.int32()),
        ("step", pa.int64()),  # steps made, counted from 1
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),  # without padding
        ("energy", pa.float64()),  # computed for the sample where the kernel tracks none
        ("temperature", pa.float64()),
        ("accepted", pa.bool_()),
    ]
)

TRACE = pa.schema(
    [
        ("step", pa.int64()),  # steps made, counted from 1
        ("chain", pa.int32()),
        ("energy", pa.float64()),  # of the state after the step; NaN where the kernel tracks none
        ("temperature", pa.float64()),
        ("accepted", pa.bool_()),
        ("log_ratio", pa.float32()),  # log acceptance ratio before min(1, ·)
        ("positions", pa.list_(pa.int32())),  # that were proposed to change; p is the place of a token in `token_ids`
        ("changed", pa.int32()),  # tokens that did change
        ("rows", pa.float64()),  # model rows, the chain's share
        ("seconds", pa.float64()),  # wall time, the chain's share
    ]
)


def samples_table(records: list[dict[str, Any]]) -> pa.Table:
    """Records of kept states (see `records_of`) as a table of the schema `SAMPLES`."""
    return pa.Table.from_pylist(records, schema=SAMPLES)


class TraceBuffer:
    """Collects steps as small arrays and turns them into tables of the schema `TRACE`."""

    _steps_a_table = 1024

    def __init__(self) -> None:
        self._steps: list[dict[str, np.ndarray]] = []
        self._tables: list[pa.Table] = []

    def add(self, tick: Tick, seconds: float) -> None:
        """Add one step, which took `seconds` of wall time for all chains together."""
        count, info = len(tick.chains), tick.info
        self._steps.append(
            {
                "step": np.full(count, tick.step),
                "chain": _array(tick.chains),
                "energy": _array(tick.state.energy),
                "temperature": _array(tick.temperature, count),
                "accepted": _array(info.accepted),
                "log_ratio": _array(info.log_ratio).astype(np.float32),
                "positions": _array(info.positions).astype(np.int32),
                "changed": _array(info.changed).astype(np.int32),
                "rows": np.full(count, info.rows / count),
                "seconds": np.full(count, seconds / count),
            }
        )
        if len(self._steps) >= self._steps_a_table:
            self._settle()

    def table(self) -> pa.Table:
        """What was collected since the last `clear`."""
        self._settle()
        return pa.concat_tables(self._tables) if self._tables else TRACE.empty_table()

    def clear(self) -> None:
        self._steps, self._tables = [], []

    def _settle(self) -> None:
        if not self._steps:
            return
        columns = []
        for field in TRACE:
            arrays = [step[field.name] for step in self._steps]
            column = _lists(arrays) if field.name == "positions" else pa.array(np.concatenate(arrays))
            columns.append(column.cast(field.type))
        self._tables.append(pa.Table.from_arrays(columns, schema=TRACE))
        self._steps = []


def _array(values: Tensor | float, count: int = 0) -> np.ndarray:
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy().copy()
    return np.full(count, values)


def _lists(arrays: list[np.ndarray]) -> pa.ListArray:
    """[C, K] arrays, K differing from step to step, as one list array."""
    lengths = np.concatenate([np.full(len(array), array.shape[1]) for array in arrays])
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, np.concatenate([array.ravel() for array in arrays]))
