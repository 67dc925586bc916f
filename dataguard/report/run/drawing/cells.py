"""What does the page's script need to tell what a rank was fed: every cell of the heat maps, in few bytes?

A run has thousands of cells with several samples each, and most of their texts come again and again. So each text
stands once in a list, a sample is a row of numbers with places in it, and whatever is not there costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dataguard.report.html import told, visible
from dataguard.report.run.drawing.grid import HeatView
from dataguard.report.run.drawing.numbers import rows_as_data
from dataguard.report.run.facts import CellSample, HeatCell, Preview

__all__ = ["heats_data", "previews_data"]


class _Texts:
    """Texts by their place, each once, harmless."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Where it stands."""
        found = self._places.get(text)
        if found is None:
            found = self._places[text] = len(self.all)
            self.all.append(visible(text))
        return found

    def places(self, texts: Iterable[str]) -> list[int]:
        """Where they stand."""
        return [self.place(text) for text in texts]


def heats_data(views: Iterable[HeatView]) -> dict[str, Any]:
    """The maps and what is in their cells: ``texts`` and ``maps``, each with its ``cells``.

    A cell is ``[rank, step, attempt, number of samples, command, samples]`` with the first two as places; a sample is
    told by `_sample`.
    """
    texts = _Texts()
    maps = []
    for view in views:
        heat = view.heat
        ranks = {rank: place for place, rank in enumerate(heat.ranks)}
        steps = {step: place for place, step in enumerate(heat.steps)}
        maps.append(
            {
                "ranks": heat.ranks,
                "steps": heat.steps,
                "measures": [
                    {
                        "title": visible(shown.title),
                        "values": [rows_as_data(row) for row in measure.values],
                        "signs": shown.rows,
                        "ticks": shown.scale.ticks if shown.scale else (),
                        "is_log": shown.scale is not None and shown.scale.is_log,
                    }
                    for shown, measure in zip(view.measures, heat.measures, strict=True)
                ],
                "cells": [_cell(cell, ranks, steps, texts) for cell in heat.cells],
            }
        )
    return {"maps": maps, "texts": texts.all}


def previews_data(previews: Iterable[Preview]) -> list[dict[str, Any]]:
    """How records look: their parts as ``[kind, marked, text]``, and what is marked."""
    return [
        {
            "parts": [[kind, int(marked), visible(text)] for kind, marked, text in preview.parts],
            "size": preview.size,
            "signal": None if preview.signal is None else visible(preview.signal),
            "num_spans": preview.num_spans,
            "problem": None if preview.problem is None else visible(preview.problem),
        }
        for preview in previews
    ]


def _cell(cell: HeatCell, ranks: dict[int, int], steps: dict[int, int], texts: _Texts) -> list[Any]:
    ordered = sorted(cell.samples, key=lambda sample: not sample.outlying)
    samples = [_sample(sample, texts) for sample in ordered]
    return [ranks[cell.rank], steps[cell.step], cell.attempt, cell.num_samples, visible(cell.command), samples]


def _sample(sample: CellSample, texts: _Texts) -> list[Any]:
    """Microbatch, slot, position, source, shard, row, status, digest, outlying, loss, preview, verdict, substitute,
    rules, reasons; what is missing at the end is left out.
    """  # fmt: skip
    row: list[Any] = [
        sample.microbatch,
        sample.slot,
        sample.position,
        texts.place(sample.source),
        texts.place(sample.shard),
        sample.row,
        texts.place(sample.status),
        visible(sample.digest),
        int(sample.outlying),
        None if sample.loss is None else told(sample.loss),
        sample.preview,
        None if sample.verdict is None else texts.place(sample.verdict),
        None if sample.delivered is None else [texts.place(sample.delivered[0]), sample.delivered[1]],
        texts.places(sample.rules) or None,
        texts.places(sample.why) or None,
    ]
    while row and row[-1] is None:
        row.pop()
    return row
