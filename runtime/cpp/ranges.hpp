// Named ranges for profilers, by NVTX 3: what its headers do, for two of its functions.
//
// A program with NVTX has no library of NVIDIA's. It loads the one that a profiler names in the
// environment and hands it its tables of function pointers, which the profiler fills in.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>

namespace cudnn_bindgen {

// NULL as long as no profiler has filled them in.
struct RangeApi {
    int (*push)(const char* name) = nullptr;
    int (*pop)() = nullptr;
};

namespace detail {

// Numbers and structures of nvtxTypes.h.
enum : unsigned { kCallbacks = 1, kVersionInfo = 3, kVersion = 3, kCoreModule = 1 };
enum : size_t { kRangePushA = 9, kRangePop = 11, kMostFunctions = 17 };

// How many functions each module has; some profilers stay away if one is missing.
constexpr unsigned kFunctions[] = {0, 16, 9, 15, 7, 16, 7};

using Function = void (*)();

struct ExportedCallbacks {
    size_t size;
    int (*get_functions)(unsigned module, Function*** table, unsigned* count);
};

struct ExportedVersion {
    size_t size;
    uint32_t version;
    uint32_t reserved;
    void (*set_injected)(uint32_t version);
};

// What a profiler fills in: the two functions, and what takes all those that nobody here calls.
inline RangeApi found_ranges;
inline Function unused_function;

// As in NVIDIA's headers the count is without the null that ends the table.
inline int get_functions(unsigned module, Function*** table, unsigned* count) {
    static Function* tables[std::size(kFunctions)][kMostFunctions];
    if (module == 0 || module >= std::size(kFunctions)) return 0;
    Function** const functions = tables[module];
    std::fill_n(functions + 1, kFunctions[module] - 1, &unused_function);
    if (module == kCoreModule) {
        functions[kRangePushA] = reinterpret_cast<Function*>(&found_ranges.push);
        functions[kRangePop] = reinterpret_cast<Function*>(&found_ranges.pop);
    }
    if (table) *table = functions;
    if (count) *count = kFunctions[module];
    return 1;
}

inline void set_injected(uint32_t) {}

inline const void* export_table(uint32_t id) {
    static const ExportedCallbacks callbacks{sizeof(ExportedCallbacks), get_functions};
    static const ExportedVersion version{sizeof(ExportedVersion), kVersion, 0, set_injected};
    if (id == kCallbacks) return &callbacks;
    return id == kVersionInfo ? &version : nullptr;
}

}  // namespace detail

// Attaches the profiler that the environment names, at the first call; one thread at a time. False
// if there is none. Its library stays loaded.
inline bool find_ranges(RangeApi& ranges) {
    static const bool is_attached = [] {
        const char* path = std::getenv("NVTX_INJECTION64_PATH");
        void* library = path ? dlopen(path, RTLD_LAZY) : nullptr;
        if (!library) return false;
        using Initialize = int (*)(const void* (*)(uint32_t));
        const auto initialize =
            reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2"));
        return initialize && initialize(detail::export_table) && detail::found_ranges.push &&
               detail::found_ranges.pop;
    }();
    if (is_attached) ranges = detail::found_ranges;
    return is_attached;
}

}  // namespace cudnn_bindgen
