"""Mutated real files, up to where the frontend would be called: calls, or an error in one line.

As tests/codegen/test_fuzz.py, which does the same for what is emitted; the examples never change.
"""

from __future__ import annotations

from codegen.test_fuzz import BOUNDED, INDICES, NUMBERS, SEEDS
from hypothesis import given
from support.mutations import mutate

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.frontend.planning.call import Call
from cudnn_bindgen.frontend.planning.compare import compare
from cudnn_bindgen.frontend.planning.constants import NOTHING, resolve_constants
from cudnn_bindgen.frontend.planning.lowering import undo_lowering
from cudnn_bindgen.frontend.planning.make_plan import read_input
from cudnn_bindgen.frontend.planning.replay import replay


def calls_of(data: bytes) -> list[Call]:
    structure = read_input(data, "g", ReadOptions(index=1))
    assert undo_lowering(structure) == structure
    assert list(compare(structure, structure)) == []
    resolve_constants(structure, NOTHING)
    return [replay(node, f"$.nodes[{index}]") for index, node in enumerate(structure.nodes)]


def check_one_line(error: Exception) -> None:
    assert str(error).isascii() and str(error).isprintable()
    assert len(str(error)) < 2000


@given(INDICES, NUMBERS)
@BOUNDED
def test_a_mutated_file_is_replayed_or_refused_in_one_line(index: int, number: int) -> None:
    try:
        calls_of(mutate(SEEDS, index, number))
    except (GraphFormatError, PlanError) as error:
        check_one_line(error)


def test_mutations_reach_past_the_reader() -> None:
    counts = {"calls": 0, "refused": 0}
    for number in range(200):
        try:
            calls_of(mutate(SEEDS, number % len(SEEDS), number))
        except GraphFormatError:
            continue
        except PlanError:
            counts["refused"] += 1
        else:
            counts["calls"] += 1
    assert counts["calls"] > 20 and counts["refused"] > 5, counts
