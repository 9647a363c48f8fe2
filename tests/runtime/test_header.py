"""Callers in C and C++: the header that `--header` writes, compiled by their compilers."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from support.cases import CASES
from support.documents import TESTS
from support.standin import Standin

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.render.module import render

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{sysconfig.get_path('include')}")
LANGUAGES = {"c": ("gcc", "-std=c11"), "c++": ("g++", "-std=c++11")}
C_TYPES = {
    "void*": ctypes.c_void_p,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint16_t": ctypes.c_uint16,
}
SUCCESS, NOT_LOADED, REFUSED, NO_PLAN, NO_WORKSPACE, WRONG_STREAM, FAILED = range(7)

Place = Callable[..., Any]


def header(case: str) -> str:
    binding = CASES[case].binding
    files = render(binding, CASES[case].module, f"{case}.plan", [("--header", "")])
    return files[f"{CASES[case].module}.h"]


class Caller:
    """A library in C, or C++, that includes a header and calls what is in it."""

    def __init__(self, folder: Path, name: str, text: str, language: str = "c") -> None:
        (folder / f"{name}.h").write_text(text)
        start = text.index(f"static inline int {name}_enqueue(")
        parameters = text[start : text.index(") {", start)].partition("(")[2]
        lines = [line.partition("/*")[0].strip(" ,") for line in parameters.splitlines()]
        pairs = [line.rsplit(" ", 1) for line in lines if line]
        takes, passes = ", ".join(map(" ".join, pairs)), ", ".join(name for _, name in pairs)
        source = folder / f"caller.{language.replace('c++', 'cpp')}"
        source.write_text(
            f'#include "{name}.h"\n'
            '#ifdef __cplusplus\n#define SHOWN extern "C"\n#else\n#define SHOWN extern\n#endif\n'
            f"SHOWN int load(const char *name);\nSHOWN const char *error(void);\n"
            f"SHOWN int call({takes});\n"
            f"int load(const char *name) {{ return {name}_load(name); }}\n"
            f"const char *error(void) {{ return {name}_error(); }}\n"
            f"int call({takes}) {{ return {name}_enqueue({passes}); }}\n"
            # On a thread that Python does not know, with what it has to say of it.
            "#include <pthread.h>\n"
            f"static struct {{ {' '.join(f'{kind} {one};' for kind, one in pairs)} }} given;\n"
            "static int code;\nstatic char said[1024];\n"
            "static void *begin(void *unused) {\n(void)unused;\n"
            f"code = {name}_enqueue({', '.join(f'given.{one}' for _, one in pairs)});\n"
            f'snprintf(said, sizeof said, "%.1000s", {name}_error());\nreturn NULL;\n}}\n'
            f"SHOWN int apart({takes});\nSHOWN const char *error_apart(void);\n"
            "const char *error_apart(void) { return said; }\n"
            f"int apart({takes}) {{\npthread_t thread;\n"
            f"{' '.join(f'given.{one} = {one};' for _, one in pairs)}\n"
            "if (pthread_create(&thread, NULL, begin, NULL)) return -1;\n"
            "pthread_join(thread, NULL);\nreturn code;\n}\n"
        )
        library = folder / "caller.so"
        command = [*LANGUAGES[language], *STRICT, "-shared", "-fPIC", str(source), "-o", library]
        subprocess.run(command, check=True)
        # ctypes lets go of the GIL for each call.
        self._library = ctypes.CDLL(str(library))
        self._library.error.restype = ctypes.c_char_p
        self._library.error_apart.restype = ctypes.c_char_p
        for function in (self._library.call, self._library.apart):
            function.argtypes = [C_TYPES[kind] for kind, _ in pairs]

    def load(self, module: str) -> int:
        return int(self._library.load(module.encode()))

    def call(self, *arguments: Any, workspace: int = 0, stream: int = 0) -> int:
        return int(self._library.call(*arguments, workspace, stream))

    def call_apart(self, *arguments: Any) -> tuple[int, str]:
        """Call on a thread of C; return the status and the error of that thread."""
        status = int(self._library.apart(*arguments, 0, 0))
        return status, str(self._library.error_apart().decode())

    @property
    def error(self) -> str:
        return str(self._library.error().decode())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_call_computes_what_execute_does(
    language: str, thd: ModuleType, place: Place, standin: Standin, tmp_path: Path
) -> None:
    caller = Caller(tmp_path, "thd", header("thd"), language)
    operands = place("thd")
    assert caller.call(*operands.arguments) == NOT_LOADED
    assert caller.error == "thd_load() was not called, or failed"
    assert caller.load("thd") == SUCCESS
    for _ in range(5):
        operands.fill()
        assert caller.call(*operands.arguments) == SUCCESS
        operands.check()
    assert thd.launch_stats()["hit_rate"] >= 0


def test_scalars_are_passed_by_value(
    load: Callable[[str], ModuleType], place: Place, tmp_path: Path
) -> None:
    case = CASES["bare_scalars"]
    module = load(case.module)
    module.load_plan(case.plan)
    caller = Caller(tmp_path, case.module, header("bare_scalars"))
    assert caller.load(case.module) == SUCCESS
    operands = place(case)
    values = dict(operands.by_uid)
    for operand in module.OPERANDS:
        if operand.role == "scalar" and operand.data_type in ("HALF", "BFLOAT16"):
            values[operand.uid] = bits(operand.data_type, values[operand.uid])
    assert caller.call(*values.values()) == SUCCESS
    operands.check()


def bits(data_type: str, value: float) -> int:
    """Return what C passes for a scalar of 16 bits."""
    if data_type == "HALF":
        import struct

        return int.from_bytes(struct.pack("<e", value), "little")
    return ctypes.c_uint32.from_buffer(ctypes.c_float(value)).value >> 16


def test_errors_are_codes_with_a_message(
    thd: ModuleType, place: Place, standin: Standin, tmp_path: Path
) -> None:
    caller = Caller(tmp_path, "thd", header("thd"))
    assert caller.load("no_such_module") == NOT_LOADED
    assert caller.error == "ModuleNotFoundError: No module named 'no_such_module'"
    assert caller.load("json") == NOT_LOADED
    assert caller.load("thd") == SUCCESS
    addresses = place("thd").arguments
    assert caller.call(0, *addresses[1:]) == REFUSED
    assert caller.error.startswith("OperandError: q_ptr: ")
    assert caller.call(*addresses, workspace=8) == REFUSED
    stream = standin.stream()
    standin.begin_capture(stream)
    assert caller.call(*addresses, stream=stream) == NO_WORKSPACE
    assert standin.end_capture(stream) == 0
    standin.destroy_stream(stream)
    thd.close()
    assert caller.call(*addresses) == NO_PLAN
    assert caller.error.startswith("PlanNotLoadedError: thd")
    thd.load_plan()
    standin.fail("cudnnBackendExecute", status=5000)
    thd.set_launch_policy("direct")
    assert caller.call(*addresses) == FAILED
    assert caller.error.startswith("CudnnError: thd")
    assert sys.exc_info() == (None, None, None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_threads_of_c_get_results_and_errors(
    language: str, thd: ModuleType, place: Place, tmp_path: Path
) -> None:
    caller = Caller(tmp_path, "thd", header("thd"), language)
    assert caller.load("thd") == SUCCESS
    operands = place("thd")
    assert caller.call_apart(*operands.arguments)[0] == SUCCESS
    operands.check()
    status, said = caller.call_apart(0, *operands.arguments[1:])
    assert (status, said.partition(": ")[0]) == (REFUSED, "OperandError")
    assert "q_ptr" in said


def test_a_header_is_written_again(tmp_path: Path) -> None:
    target = tmp_path / "attn.pyx"
    graph = TESTS / "data/plans/cudnn-9.19-sm90/sdpa_dense.plan"
    words = ["emit", "-q", "--header", "-o", str(target), str(graph)]
    for _ in range(2):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
    target.with_suffix(".h").write_text("/* another hand's */\n")
    assert CliRunner().invoke(main, words).exit_code == 2


def test_a_header_of_another_graph_is_refused(thd: ModuleType, tmp_path: Path) -> None:
    text = header("thd").replace(thd.FINGERPRINT, "0" * 32)
    caller = Caller(tmp_path, "thd", text)
    assert caller.load("thd") == NOT_LOADED
    assert "thd is another graph's module than its header" in caller.error
    text = header("thd").replace('"int (void *, void *, ', '"int (float, void *, ')
    (tmp_path / "other").mkdir()
    assert Caller(tmp_path / "other", "thd", text).load("thd") == NOT_LOADED


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_header_compiles_without_a_warning(language: str, tmp_path: Path) -> None:
    golden = TESTS / "golden"
    graphs = {
        "hostile_names": [golden / "hostile_names" / "input.json"],
        "scalars": [golden / "scalars" / "input.json"],
        "empty": [golden / "empty" / "input.json"],
        "family": ["--family=family", *sorted((golden / "family").glob("member*.json"))],
        "overridden": [golden.parent / "data/plans/cudnn-9.27-sm90/matmul_override.plan"],
        "chain": ["--chain", golden / "chain" / "input.toml"],
    }
    for name, arguments in graphs.items():
        target = tmp_path / f"{name}.pyx"
        words = ["emit", "-q", "--header", "-o", str(target), *map(str, arguments)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        command = [*LANGUAGES[language], *STRICT, "-fsyntax-only", "-x", language]
        subprocess.run([*command, str(target.with_suffix(".h"))], check=True)


def test_nothing_ends_the_comments(tmp_path: Path) -> None:
    source = tmp_path / "attn.json"
    text = (TESTS / "golden" / "scalars" / "input.json").read_text()
    source.write_text(text.replace('"alpha"', '"*/ int evil; /* \\\\"'))
    target = tmp_path / "attn.pyx"
    words = ["emit", "-q", "--header", "-o", str(target), str(source)]
    assert CliRunner().invoke(main, words).exit_code == 0
    shown = target.with_suffix(".h").read_text()
    assert "evil" in shown
    assert "*/ int evil" not in shown
    command = [*LANGUAGES["c"], *STRICT, "-fsyntax-only", "-x", "c"]
    subprocess.run([*command, str(target.with_suffix(".h"))], check=True)
