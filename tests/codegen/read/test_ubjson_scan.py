"""The look over UBJSON before it is decoded: right files pass, sizes that cannot be do not."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import ubjson
from hypothesis import given
from hypothesis import strategies as st

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects.ubjson_scan import MAX_DEPTH, MAX_VALUES, check_sizes

PLANS = sorted((Path(__file__).parents[2] / "data/plans").glob("*/*.plan"))
HUGE = b"l\x7f\xff\xff\xff"

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_subnormal=False)  # which py-ubjson writes as text
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_real_plans_pass(plan: Path) -> None:
    check_sizes(plan.read_bytes())


@given(value=VALUES, counted=st.booleans())
def test_whatever_is_encoded_passes(value: object, counted: bool) -> None:
    check_sizes(ubjson.dumpb(value, container_count=counted))


@given(value=VALUES, counted=st.booleans(), data=st.data())
def test_whatever_is_cut_does_not(value: object, counted: bool, data: st.DataObject) -> None:
    encoded = ubjson.dumpb(value, container_count=counted)
    length = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(GraphFormatError, match=r"broken UBJSON: expected .* at byte \d+"):
        check_sizes(encoded[:length])


@given(data=st.binary(max_size=200))
def test_any_bytes_pass_or_are_refused(data: bytes) -> None:
    try:
        check_sizes(data)
    except GraphFormatError as error:
        assert "broken UBJSON" in str(error)


def test_what_passes_is_typed_too() -> None:
    check_sizes(b"[$U#i\x03\x01\x02\x03")
    check_sizes(b"{$i#i\x01i\x01a\x05")
    check_sizes(b"[$[#i\x02#i\x01Z]")
    check_sizes(b"HU\x1418446744073709551615")


REFUSED = {
    "no-ops": (b"[NNNZ]", "a marker, got b'N' at byte 1"),
    "nulls": (b"{i\x01a[$Z#" + HUGE, "a type with a payload at byte 6"),
    "bytes": (b"{i\x01a[$U#" + HUGE, "no more items than bytes, got 2147483647 at byte 13"),
    "many": (
        b"[" + b"Z" * MAX_VALUES + b"]",
        f"at most {MAX_VALUES} values at byte {MAX_VALUES + 1}",
    ),
    "counted array": (b"{i\x01a[#" + HUGE, "no more items than bytes, got 2147483647 at byte 11"),
    "counted object": (b"{#" + HUGE, "no more items than bytes, got 2147483647 at byte 7"),
    "text": (b"{i\x01aS" + HUGE, "2147483647 more bytes, got 0 at byte 10"),
    "key": (b"{" + HUGE, "2147483647 more bytes, got 0 at byte 6"),
    "negative": (b"{i\xff", "a length, got -1 at byte 2"),
    "length of text": (b"{S", "the type of a length, got b'S' at byte 1"),
    "marker": (b"{i\x01a?", "a marker, got b'?' at byte 4"),
    "type without count": (b"{i\x01a[$U]", "a count after a type at byte 7"),
    "signalling NaN": (b"HU\x04sNaN", "an integer at byte 3"),
    "number beyond all floats": (b"HU\x041e99", "an integer at byte 3"),
    "endless integer": (b"HU\x15" + b"1" * 21, "an integer at byte 3"),
    "deep": (b"[" * (MAX_DEPTH + 1), f"at most {MAX_DEPTH} levels at byte {MAX_DEPTH + 1}"),
    "nothing": (b"", "1 more bytes, got 0 at byte 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    data, expected = REFUSED[name]
    with pytest.raises(GraphFormatError) as caught:
        check_sizes(data)
    assert f"expected {expected}" in caught.value.problem
    assert "graph.serialize()" in caught.value.hint


@pytest.mark.parametrize("name", ["nulls", "bytes", "counted array", "counted object", "text"])
def test_a_small_file_takes_little_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.plan"
    path.write_bytes(REFUSED[name][0])
    limit = 512 << 20
    done = subprocess.run(
        [sys.executable, "-m", "cudnn_bindgen.cli", "emit", str(path), "-o", "-"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert REFUSED[name][1] in done.stderr
    assert len(done.stderr.splitlines()) == 1
