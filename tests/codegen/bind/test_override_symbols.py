"""Symbols as a user writes them: what they become, and what each wrong one is told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.documents import DATA, document, node, tensor, to_json
from support.emitting import record_of, without_options
from support.overriding import SYMBOLS, product_plan

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions, OverrideParts, follow
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.graph import read_graph

PLANS = DATA / "plans/cudnn-9.27-sm90"
PRODUCT = product_plan()


def parts(*symbols: str, graph: bytes = PRODUCT, is_unbounded: bool = False) -> OverrideParts:
    overrides = bind(read_graph(graph), OverrideOptions(symbols, is_unbounded)).overrides
    assert overrides is not None
    return overrides


def uses(symbol: str, graph: bytes = PRODUCT) -> list[tuple[int, int, object]]:
    [only] = parts(symbol, graph=graph).symbols
    return [(use.slot, use.axis, use.steps) for use in only.uses]


# What they become


def test_axes_by_name_or_number() -> None:
    assert uses("M=a.m,c.1,d.0") == [(0, 1, ()), (2, 1, ()), (3, 0, ())]
    assert uses("M=a.1,c.m,d.d0") == uses("M=a.m,c.1,d.0")


def test_spaces_around_names_do_not_count() -> None:
    assert uses(" M = a.m , c.m+1 ,\n d.0") == [(0, 1, ()), (2, 1, (("+", 1),)), (3, 0, ())]


def test_steps_are_applied_from_left_to_right() -> None:
    assert uses("M=a.m/2+1*3%8") == [(0, 1, (("/", 2), ("+", 1), ("*", 3), ("%", 8)))]
    [symbol] = parts("M=a.m/2+1*3%8").symbols
    steps = symbol.uses[0].steps
    assert [follow(number, steps) for number in (0, 1, 2, 3, 4, 5)] == [8, 8, 8, 16, 16, 16]


def test_packed_unless_said_otherwise() -> None:
    symbols = parts("A=a.b", "M:packed=a.m", "K:declared=b.k").symbols
    assert [symbol.is_packed for symbol in symbols] == [True, True, False]


def test_none_is_needed() -> None:
    assert parts().symbols == ()
    assert parts(is_unbounded=True).is_unbounded


# What is refused

AXES = "0 (b), 1 (m), 2 (k)"
FORM = "expected NAME=OPERAND.AXIS,... such as B=q.0,k.0, got this"
STEPS = "expected OPERAND.AXIS with steps +N, *N, /N or %N, got"
NAME = "expected a name that can be an argument, got"

REFUSED: dict[str, tuple[Sequence[str], str]] = {
    "no equals sign": (["M"], f'--symbol "M": {FORM}'),
    "nothing": ([""], f'--symbol "": {FORM}'),
    "no name": (["=a.m"], f'--symbol "=a.m": {FORM}'),
    "no ASCII": (["µ=a.m"], f'--symbol "\\xb5=a.m": {FORM}'),
    "mode": (
        ["M:fixed=a.m"],
        '--symbol "M:fixed=a.m": expected packed or declared after the colon, got fixed',
    ),
    "keyword": (["class=a.m"], f'--symbol "class=a.m": {NAME} class'),
    "self": (["self=a.m"], f'--symbol "self=a.m": {NAME} self'),
    "underscore": (["_M=a.m"], f'--symbol "_M=a.m": {NAME} _M'),
    "digit": (["1M=a.m"], f'--symbol "1M=a.m": {NAME} 1M'),
    "no use": (["M="], f'--symbol "M=": {STEPS} nothing'),
    "trailing comma": (["M=a.m,"], f'--symbol "M=a.m,": {STEPS} nothing'),
    "no axis": (["M=a"], f'--symbol "M=a": {STEPS} a'),
    "minus": (["M=a.m-1"], f'--symbol "M=a.m-1": {STEPS} a.m-1'),
    "half a step": (["M=a.m+"], f'--symbol "M=a.m+": {STEPS} a.m+'),
    "long step": (["M=a.m+1234567890"], f'--symbol "M=a.m+1234567890": {STEPS} a.m+1234567890'),
    "zero": (
        ["M=a.m/0"],
        '--symbol "M=a.m/0": expected a positive number after *, / and %, got a.m/0',
    ),
    "operand": (["M=q.m"], '--symbol "M=q.m": expected an operand among a, b, c, d, got q'),
    "scalar": (
        ["M=alpha.0"],
        '--symbol "M=alpha.0": expected an operand among a, b, c, d, got alpha',
    ),
    "axis": (["M=a.n"], f'--symbol "M=a.n": expected an axis of a among {AXES}, got n'),
    "axis number": (["M=a.3"], f'--symbol "M=a.3": expected an axis of a among {AXES}, got 3'),
    "axis twice": (["M=a.m,a.1"], '--symbol "M=a.m,a.1": expected each axis once, got one twice'),
    "symbol twice": (["M=a.m", "M=c.m"], "--symbol M: expected each symbol once, got it twice"),
    "axis of another": (
        ["M=a.m", "N=c.n,a.m"],
        "--symbol N: expected axes of its own, got one of M",
    ),
    "above declared": (
        ["M=a.m+13"],
        "--symbol M: expected a dim that can be 13, got a.m, declared 12",
    ),
    "too many": (
        [f"S{number}=a.m" for number in range(65)],
        "--symbol: expected at most 64, got 65",
    ),
}


@pytest.mark.parametrize(("symbols", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_symbol(symbols: Sequence[str], message: str) -> None:
    with pytest.raises(EmitError) as caught:
        parts(*symbols)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "options", [OverrideOptions(("M=a.m",)), OverrideOptions(is_unbounded=True)]
)
def test_a_graph_that_takes_none(options: OverrideOptions) -> None:
    graph = read_graph(product_plan(is_enabled=False))
    with pytest.raises(EmitError) as caught:
        bind(graph, options)
    assert str(caught.value) == (
        "--symbol, --unbounded: expected a graph with is_override_shape_enabled, got one without"
    )
    assert bind(graph).overrides is None


def bind_one(dim: list[int], stride: list[int], *symbols: str) -> Binding:
    raw = document(
        [node("NEW", {"X": 1}, {"Y": 2})],
        [tensor(1, "x", dim=dim, stride=stride), tensor(2, "y", dim=[1], stride=[1])],
    )
    raw["context"]["is_override_shape_enabled"] = True
    return bind(read_graph(to_json(raw)), OverrideOptions(symbols))


@pytest.mark.parametrize(
    ("dim", "stride", "axis", "is_refused"),
    [
        ([4, 8], [8, 1], 1, False),
        ([4, 8], [10, 1], 1, True),
        ([4, 8], [10, 1], 0, False),
        ([2, 4, 8], [50, 10, 1], 1, True),
        ([2, 4, 8], [40, 10, 1], 1, False),
        ([2, 4, 8], [1, 2, 8], 0, False),
        ([2, 4, 8], [1, 3, 12], 0, True),
        ([1, 8], [99, 1], 1, False),
        ([4, 8], [0, 1], 1, False),
    ],
)
def test_strides_that_have_no_rule_further_out_must_be_declared(
    dim: list[int], stride: list[int], axis: int, is_refused: bool
) -> None:
    assert bind_one(dim, stride, f"S:declared=x.{axis}").overrides
    if not is_refused:
        assert bind_one(dim, stride, f"S=x.{axis}").overrides
        return
    message = (
        f"--symbol S: expected packed strides, got {tuple(stride)} for x {tuple(dim)}: "
        'write "S:declared=..." to keep them'
    )
    with pytest.raises(EmitError, match=f"^{re.escape(message)}$"):
        bind_one(dim, stride, f"S=x.{axis}")


# The classes of FlashInfer's graphs


def test_ragged_attention() -> None:
    """Offsets have one entry more than there are sequences; lengths are of the buffers."""
    raw = json.loads((PLANS / "sdpa_thd.json").read_bytes())
    raw["context"]["is_override_shape_enabled"] = True
    graph = to_json(raw)
    names = {shape.name for shape in parts(graph=graph).shapes}
    offsets = sorted(name for name in names if "ragged" in name)
    lengths = sorted(name for name in names if name.startswith("seq_"))
    assert offsets
    every = [f"{name}.0+1" for name in offsets] + [f"{name}.0" for name in lengths]
    batch = ",".join([*every, "q.b", "k.b", "v.b", "o.b"])
    symbols = parts(f"B={batch}", "S_q:declared=q.s,o.s", "S_kv:declared=k.s,v.s", graph=graph)
    assert [len(symbol.uses) for symbol in symbols.symbols] == [len(every) + 4, 2, 2]


def test_block_scales_that_are_padded_to_128() -> None:
    raw = document(
        [
            node("BLOCK_SCALE_DEQUANTIZE", {"X": 1, "scale": 2}, {"Y": 5}),
            node("MATMUL", {"A": 5, "B": 3}, {"C": 4}),
        ],
        [
            tensor(1, "a", dim=[1, 300, 64], stride=[19200, 64, 1]),
            tensor(2, "scale", dim=[1, 384, 4], stride=[1536, 4, 1]),
            tensor(3, "b", dim=[1, 64, 8], stride=[512, 8, 1]),
            tensor(4, "c", dim=[1, 300, 8], stride=[2400, 8, 1]),
            tensor(5, "a16", dim=[1, 300, 64], stride=[19200, 64, 1], is_virtual=True),
        ],
    )
    raw["context"]["is_override_shape_enabled"] = True
    binding = bind(read_graph(to_json(raw)), OverrideOptions(("M=a.m,scale.m%128,c.m",)))
    assert binding.overrides
    [symbol] = binding.overrides.symbols
    assert [use.axis for use in symbol.uses] == [1, 1, 1]
    assert [follow(m, symbol.uses[1].steps) for m in (0, 1, 128, 129)] == [0, 128, 128, 256]


# On the command line, and in a file beside the graph


def emit(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["emit", *map(str, arguments)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "product.plan"
    path.write_bytes(PRODUCT)
    return path


def test_options_and_a_file_say_the_same(plan: Path) -> None:
    given = emit(plan, "-o", "-", "--unbounded", *(f"--symbol={symbol}" for symbol in SYMBOLS))
    file = plan.with_name("product.plan.toml")
    lines = [f'"{name}" = "{text}"' for name, text in (symbol.split("=") for symbol in SYMBOLS)]
    file.write_text("\n".join(["unbounded = true", "[symbols]", *lines]))
    assert emit(plan, "-o", "-") == without_options(given)
    assert record_of(given).graphs[0].overrides.is_unbounded
    only = record_of(emit(plan, "-o", "-", "--symbol", "N=b.n")).graphs[0].overrides
    assert not only.is_unbounded, "an option stands for the whole file"
    assert [name for name, _, _ in only.symbols] == ["N"]


def test_the_file_is_a_dependency(plan: Path, tmp_path: Path) -> None:
    file = plan.with_name("product.plan.toml")
    rule = tmp_path / "out.d"
    for is_there in (False, True):
        if is_there:
            file.write_text("")
        emit(plan, "-o", tmp_path / "product.pyx", "--depfile", rule)
        assert (str(file) in rule.read_text()) == is_there


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("unbounded = yes", "Invalid value"),
        ("unbounded = 1", "Expected `bool`, got `int` - at `$.unbounded`"),
        ("symbol = {}", "Object contains unknown field `symbol`"),
        ('symbols = ["M=a.m"]', "Expected `object`, got `array` - at `$.symbols`"),
        ("[symbols]\nM = 5", "Expected `str`, got `int` - at `$.symbols[...]`"),
        ("[symbols]\nM = 'a.m'\nM = 'c.m'", "Cannot overwrite a value"),
        ("\xff", "codec can't decode"),
    ],
)
def test_a_wrong_file(plan: Path, text: str, message: str) -> None:
    file = plan.with_name("product.plan.toml")
    file.write_bytes(text.encode("latin-1"))
    result = CliRunner().invoke(main, ["emit", str(plan), "-o", "-"])
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"error: {file}: expected options for product.plan in TOML: ")
    assert message in result.stderr
    assert result.stdout == ""


def test_a_wrong_option(plan: Path) -> None:
    for command in (["emit", "-o", "-"], ["build", "-d", str(plan.parent / "out")]):
        result = CliRunner().invoke(main, [*command, str(plan), "--symbol", "M=a.q"])
        assert result.exit_code == 2
        last = result.stderr.splitlines()[-1]
        assert last == f'error: --symbol "M=a.q": expected an axis of a among {AXES}, got q'


WORDS = """
    DEF ELIF ELSE IF NULL bint cdef char cimport const cpdef ctypedef double float include int long
    override_symbols ptrdiff_t short signed size_t sizeof ssize_t unsigned void volatile
"""


@pytest.mark.parametrize("word", WORDS.split())
def test_a_word_that_cython_or_the_module_needs_names_no_symbol(word: str) -> None:
    with pytest.raises(EmitError, match=f"expected a name that can be an argument, got {word}$"):
        parts(f"{word}=a.m")


def test_show_names_the_axes_that_symbols_may_use() -> None:
    plan = DATA / "plans/cudnn-9.27-sm90/sdpa_override.plan"
    shown = CliRunner().invoke(main, ["show", str(plan), "--json"])
    axes = {item["argument"]: item["axes"] for item in json.loads(shown.stdout)["arguments"]}
    assert axes["q_ptr"] == axes["stats_ptr"] == ["b", "h", "s", "d"]
    plain = CliRunner().invoke(main, ["show", str(DATA / "structure-v2/paged.json"), "--json"])
    assert "axes" not in json.loads(plain.stdout)["arguments"][0]
