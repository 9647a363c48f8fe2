"""recorder.hpp's choice of addresses: what it promises, in a program of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.documents import TESTS

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "recorder.hpp"

using cudnn_bindgen::CaptureMemory;
using cudnn_bindgen::DriverApi;
using cudnn_bindgen::Sample;

constexpr uint64_t kGiB = uint64_t{1} << 30;
uint64_t reserved, mapped[3], sizes[3];
int ranges = 0;

// A driver in whose memory nothing is written.
DriverApi make_driver() {
    DriverApi driver{};
    driver.exchange_capture_mode = [](int*) { return 0; };
    driver.create_memory = [](uint64_t* handle, size_t, const cudnn_bindgen::MemoryProperties*,
                              unsigned long long) { return *handle = 1, 0; };
    driver.reserve = [](uint64_t* base, size_t, size_t, uint64_t, unsigned long long) {
        return *base = reserved, 0;
    };
    driver.map = [](uint64_t, size_t, size_t, uint64_t, unsigned long long) { return 0; };
    driver.set_access = [](uint64_t address, size_t size, const cudnn_bindgen::MemoryAccess*,
                           size_t) {
        mapped[ranges] = address;
        sizes[ranges++] = size;
        return 0;
    };
    driver.allocate_host = [](void** memory, size_t size) {
        return *memory = std::malloc(size), 0;
    };
    driver.copy_to_device = [](uint64_t, const void*, size_t, void*) { return 0; };
    driver.synchronize = [](void*) { return 0; };
    return driver;
}

#define REQUIRE(condition) \
    if (!(condition)) { \
        std::printf("%zu operands of %zu bytes: operand %zu: %s\n", count, largest, i, \
                    #condition); \
        failures++; \
        break; \
    }

int main(int, char** arguments) {
    reserved = std::strtoull(arguments[1], nullptr, 0);
    const size_t largest = std::strtoull(arguments[2], nullptr, 0);
    const DriverApi driver = make_driver();
    int failures = 0;
    for (size_t count : {1, 2, 3, 5, 13, 64, 200}) {
        std::vector<uint64_t> alignments(count, 16);
        alignments.back() = 256;
        Sample samples[3];
        std::unique_lock<std::mutex> lock;
        CaptureMemory* memory = nullptr;
        ranges = 0;
        const uint64_t bytes = count * cudnn_bindgen::detail::kPlace + largest;
        // Each in a context of its own, so that none is larger than it has to be.
        const auto reason = CaptureMemory::borrow(driver, alignments.data() + count, 0, nullptr,
                                                  bytes, lock, memory);
        size_t i = 0;
        do { REQUIRE(reason.empty() && (ranges == 3 || ranges == 0)); } while (false);
        cudnn_bindgen::detail::choose_addresses(*memory, alignments.data(), count, samples);
        const auto& a = samples[0].addresses;
        const auto& b = samples[1].addresses;
        const auto& c = samples[2].addresses;
        std::set<uint64_t> shifts, upper[3];
        for (; i < count; ++i) {
            REQUIRE(a.size() == count && b.size() == count && c.size() == count);
            REQUIRE(a[i] % 4096 == 0 && b[i] % 65536 == 0);
            REQUIRE(c[i] % alignments[i] == 0 && c[i] % (2 * alignments[i]) != 0);
            // What rises in one falls in the other.
            REQUIRE(i == 0 || (b[i] > b[i - 1] && c[i] < c[i - 1]));
            for (int sample = 0; sample < 3; ++sample) {
                upper[sample].insert(samples[sample].addresses[i] >> 32);
            }
            // All that the operand may touch is mapped, up to 4 GiB.
            const uint64_t whole = std::min<uint64_t>(largest, 2 * kGiB);
            REQUIRE(ranges == 0 || (a[i] >= mapped[0] && a[i] + whole <= mapped[0] + sizes[0]));
            REQUIRE(ranges == 0 || (b[i] >= mapped[1] && b[i] + whole <= mapped[1] + sizes[1]));
            REQUIRE(ranges == 0 || (c[i] >= mapped[2] && c[i] + whole <= mapped[2] + sizes[2]));
            // No other operand moves alike.
            REQUIRE(shifts.insert((b[i] - a[i]) * 31 + (c[i] - a[i])).second);
        }
        for (uint64_t half : upper[0]) {
            i = half;
            REQUIRE(!upper[1].count(half) && !upper[2].count(half));
        }
        for (uint64_t half : upper[1]) {
            i = half;
            REQUIRE(!upper[2].count(half));
        }
    }
    return failures ? 1 : 0;
}
"""

HEADERS = TESTS.parent / "runtime" / "cpp"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    source, binary = folder / "program.cpp", folder / "program"
    source.write_text(PROGRAM)
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
    command = [os.environ.get("CXX", "g++"), *flags, f"-I{HEADERS}", str(source), "-o", str(binary)]
    subprocess.run([*command, "-ldl"], check=True)
    return binary


@pytest.mark.parametrize("base", [1 << 21, 0x7F0000000000 - (1 << 21), (1 << 47) - (64 << 30)])
@pytest.mark.parametrize("largest", [0, 8, 1 << 20, (1 << 24) + 1, 1 << 30, (1 << 31) + 8, 1 << 40])
def test_choice_of_addresses(program: Path, base: int, largest: int) -> None:
    arguments = [hex(number) for number in (base, largest)]
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
