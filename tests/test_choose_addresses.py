"""recorder.hpp's choice of addresses: what it promises, in a program of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from documents import TESTS

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <string>

#include "recorder.hpp"

using cudnn_bindgen::Sample;

constexpr uint64_t kGiB = uint64_t{1} << 30, kPage = uint64_t{1} << 21;

#define REQUIRE(condition) \
    if (!(condition)) { \
        std::printf("%zu operands from %#lx by %#lx: operand %zu: %s\n", count, base, step, i, \
                    #condition); \
        failures++; \
        break; \
    }

int main(int, char** arguments) {
    // The addresses of the call: `base`, and from there in steps up or down.
    const uint64_t base = std::strtoull(arguments[1], nullptr, 0);
    const uint64_t step = std::strtoull(arguments[2], nullptr, 0);
    int failures = 0;
    for (size_t count = 1; count <= 200; ++count) {
        std::vector<void*> addresses;
        std::vector<uint64_t> alignments;
        for (size_t i = 0; i < count; ++i) {
            addresses.push_back(reinterpret_cast<void*>(base + i * step));
            alignments.push_back(i + 1 < count ? 16 : 256);
        }
        Sample samples[3];
        cudnn_bindgen::detail::choose_addresses(addresses.data(), alignments.data(), count,
                                                samples);
        const auto& a = samples[0].addresses;
        const auto& b = samples[1].addresses;
        const auto& c = samples[2].addresses;
        for (size_t i = 0; i < count; ++i) {
            REQUIRE(a.size() == count && b.size() == count && c.size() == count);
            REQUIRE(a[i] == base + i * step);
            REQUIRE(b[i] % kPage == 0);
            REQUIRE(c[i] % alignments[i] == 0 && c[i] % (2 * alignments[i]) != 0);
            REQUIRE(b[i] > 0 && b[i] < uint64_t{1} << 47);
            REQUIRE(c[i] > 0 && c[i] < uint64_t{1} << 47);
            // What rises in one falls in the other.
            REQUIRE(i == 0 || (b[i] >= b[i - 1] + 4 * kGiB && c[i] + 4 * kGiB <= c[i - 1]));
            REQUIRE((b[i] > a[i] ? b[i] - a[i] : a[i] - b[i]) >= 4 * kGiB);
            REQUIRE((c[i] > a[i] ? c[i] - a[i] : a[i] - c[i]) >= 4 * kGiB);
            size_t j = 0;
            while (j < i && (b[i] - a[i] != b[j] - a[j] || c[i] - a[i] != c[j] - a[j])) ++j;
            REQUIRE(j == i);
        }
    }
    return failures ? 1 : 0;
}
"""

RUNTIME = TESTS.parent / "runtime"
TOP = 1 << 47


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    source, binary = folder / "program.cpp", folder / "program"
    source.write_text(PROGRAM)
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
    command = [os.environ.get("CXX", "g++"), *flags, f"-I{RUNTIME}", str(source), "-o", str(binary)]
    subprocess.run([*command, "-ldl"], check=True)
    return binary


@pytest.mark.parametrize(
    ("base", "step"),
    [
        *[(0x1000, step) for step in (0, 16, 4096, 1 << 21, 1 << 32, 1 << 33, 1 << 36)],
        *[(0x7F0000000000, step) for step in (16, 1 << 21, 1 << 30, 1 << 32)],
        *[(TOP - 0x1000, -step) for step in (0, 16, 1 << 21, 1 << 30, 1 << 32, 1 << 33, 1 << 37)],
        *[(TOP - (200 << 32), 1 << 32), (0x7FFF00000000, 64), (1 << 33, 3 << 32)],
    ],
)
def test_choice_of_addresses(program: Path, base: int, step: int) -> None:
    arguments = [hex(number % (1 << 64)) for number in (base, step)]
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
