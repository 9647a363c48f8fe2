from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_bindgen.codegen.bind import naming
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.graph import is_made_up

NAMES = st.text(st.characters()) | st.sampled_from(
    ["q", "Q", "q_2", "x_ptr", "class", "int", "stream", "workspace", "workspace_ptr", "tensor_1"]
)
PORTS = st.sampled_from(["q", "k", "in_0", "in_0_2", "o", "int_", "stats", "q_ragged_offset"])


def is_legal(name: str) -> bool:
    return (
        name.isascii()
        and name.isidentifier()
        and name == name.lower()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
    )


@pytest.mark.parametrize(
    "name", ["", "tensor_0", "tensor_123", "0::Y", "sdpa::O", "::OUT_0", "a b\n::X", "a::b::C_1"]
)
def test_names_that_the_frontend_made_up(name: str) -> None:
    assert is_made_up(name)


@pytest.mark.parametrize(
    "name", ["q", "tensor", "tensor_", "tensor_1a", "my_tensor_1", "a:b", "a::b c", "tensor_\u0663"]
)
def test_names_that_a_user_chose(name: str) -> None:
    assert not is_made_up(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("q", "q"),
        ("Q", "q"),
        ("attn/out.0", "attn_out_0"),
        ("__init__", "init"),
        ("3d", "t3d"),
        ("\u00c9t\u00e9", "ete"),
        ("\ufb01lter", "filter"),
        ("\u6ce8\u610f", ""),
        ("\u202e", ""),
        ("_", ""),
        ("class", "class_"),
        ("None", "none"),
        ("ptrdiff_t", "ptrdiff_t_"),
        ("x" * 99, "x" * 40),
        ("x" * 39 + "_y", "x" * 39),
        ('"""\nimport os', "import_os"),
    ],
)
def test_identifiers(name: str, expected: str) -> None:
    assert naming.identifier(name) == expected


@given(NAMES)
def test_every_identifier_is_legal_and_free(name: str) -> None:
    plain = naming.identifier(name)
    if plain:
        assert is_legal(plain)
        assert len(plain) <= naming.MAX_LENGTH + 1


RESERVED = """
    address cdef enqueue execute_plan float32 int lambda match nogil ptrdiff_t queue restrict slots
    staticmethod stream workspace
"""


@pytest.mark.parametrize("word", RESERVED.split())
def test_reserved_words_get_an_underscore(word: str) -> None:
    assert naming.identifier(word) == f"{word}_"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["a", "a", "b", "a"], ["a", "a_2", "b", "a_3"]),
        (["a", "a", "a_2"], ["a", "a_3", "a_2"]),
        (["a_2", "a", "a", "a_2"], ["a_2", "a", "a_3", "a_2_2"]),
    ],
)
def test_numbering_tells_equal_names_apart(names: list[str], expected: list[str]) -> None:
    assert naming.number_names(names) == expected


@given(st.lists(PORTS | st.sampled_from(["in_0_3", "in_0_2_2"])))
def test_numbered_names_are_unique_and_the_first_of_a_kind_stays(names: list[str]) -> None:
    numbered = naming.number_names(names)
    assert len(set(numbered)) == len(names)
    for index, name in enumerate(names):
        if name not in names[:index]:
            assert numbered[index] == name


def test_a_users_name_wins_over_the_port() -> None:
    assert naming.choose_names(["q", "k", "v"], ["query", "tensor_1", ""]) == ["query", "k", "v"]


def test_a_users_name_never_moves_a_port_name() -> None:
    assert naming.choose_names(["q", "k"], ["k", "0::K"]) == ["k_2", "k"]
    assert naming.choose_names(["q", "k", "v"], ["v", "v", "::V"]) == ["v_2", "v_3", "v"]


def test_a_users_name_with_nothing_legal_in_it_gives_way() -> None:
    assert naming.choose_names(["q", "k"], ["\u6ce8\u610f", "k"]) == ["q", "k"]


OPERANDS = st.lists(st.tuples(PORTS, NAMES, st.booleans()), max_size=12)


@given(OPERANDS)
def test_names_and_arguments_are_legal_and_unique(operands: list[tuple[str, str, bool]]) -> None:
    structural = naming.number_names(port for port, _, _ in operands)
    names = naming.choose_names(structural, [name for _, name, _ in operands])
    arguments = [
        naming.argument_name(name, is_scalar)
        for name, (_, _, is_scalar) in zip(names, operands, strict=True)
    ]
    assert all(is_legal(name) for name in [*names, *arguments])
    assert len(set(names)) == len(names)
    parameters = [*arguments, "workspace_ptr", "stream"]
    assert len(set(parameters)) == len(parameters)
    for argument, (_, _, is_scalar) in zip(arguments, operands, strict=True):
        assert argument.endswith("_ptr") != is_scalar


@given(OPERANDS.filter(bool), NAMES, st.data())
def test_renaming_moves_no_argument_that_has_another_name(
    operands: list[tuple[str, str, bool]], new: str, data: st.DataObject
) -> None:
    structural = naming.number_names(port for port, _, _ in operands)
    given_names = [name for _, name, _ in operands]
    index = data.draw(st.integers(0, len(operands) - 1))
    renamed = [*given_names]
    renamed[index] = new
    before = naming.choose_names(structural, given_names)
    after = naming.choose_names(structural, renamed)
    for i, name in enumerate(given_names):
        if i != index and (is_made_up(name) or not naming.identifier(name)):
            assert before[i] == after[i] == structural[i]


@pytest.mark.parametrize(
    ("name", "is_scalar", "expected"),
    [
        ("q", False, "q_ptr"),
        ("alpha", True, "alpha"),
        ("class_", False, "class_ptr"),
        ("class_", True, "class_"),
        ("workspace_", False, "workspace__ptr"),
        ("x_ptr", False, "x_ptr_ptr"),
        ("x_ptr", True, "x_ptr_"),
    ],
)
def test_arguments(name: str, is_scalar: bool, expected: str) -> None:
    assert naming.argument_name(name, is_scalar) == expected


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("attn", "attn"),
        ("Attn-v2.1", "attn_v2_1"),
        ("2d", "t2d"),
        ("", "graph"),
        ("\u56fe", "graph"),
    ],
)
def test_module_names_from_files(stem: str, expected: str) -> None:
    assert naming.module_name(stem) == expected
    assert naming.check_module_name(expected) == expected


@pytest.mark.parametrize("name", ["", "a-b", "1a", "class", "a.b", "\u00e9", "a b", 'a"\n'])
def test_bad_module_names_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(EmitError) as caught:
        naming.check_module_name(name)
    assert str(caught.value).startswith('module name: expected a Python identifier, got "')
    assert "\n" not in str(caught.value)
