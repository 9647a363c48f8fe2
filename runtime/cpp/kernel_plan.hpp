// A plan that is kernels: device code, and the launches that one call of it consists of.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.hpp"

namespace cudnn_bindgen {

enum : int { kDynamicSharedBytes = 8, kAnyClusterSize = 14 };  // CUfunction_attribute
enum : int { kNotSupported = 801 };                            // CUresult
constexpr size_t kMapBytes = 128, kMapAlignment = 64;

// An address of a call: of the operand in a slot, or of the workspace if `slot` is negative, plus
// bytes.
struct Source {
    int slot;
    int64_t offset;

    uint64_t find(void* const* slots, const char* workspace) const {
        const void* base = slot < 0 ? workspace : slots[slot];
        return reinterpret_cast<uint64_t>(base) + static_cast<uint64_t>(offset);
    }
};

// What cuTensorMapEncodeTiled takes.
struct PlannedMap {
    int data_type;
    unsigned rank;
    uint64_t dims[5];
    uint64_t strides[4];
    unsigned box[5];
    unsigned element_strides[5];
    int modes[4];  // interleave, swizzle, L2 promotion, fill
    Source source;
};

struct PlannedParameter {
    size_t place;  // in KernelPlan::bytes
    size_t size;
};

struct PlannedKernel {
    size_t binary;
    std::string name;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    std::vector<LaunchAttribute> attributes;
    std::vector<PlannedParameter> parameters;
};

// What a call launches, but for its addresses. Laid out once, then read only.
struct KernelPlan {
    struct Word {
        size_t place;
        Source source;
    };
    struct Use {
        size_t place;
        size_t map;
    };

    std::vector<std::string> binaries;
    std::vector<PlannedMap> maps;
    std::vector<PlannedKernel> kernels;
    std::vector<unsigned char> bytes;  // parameters of all kernels
    std::vector<Word> words;           // where addresses stand in them
    std::vector<Use> uses;             // and tensor maps
    int64_t workspace_size = 0;

    void add_parameter(PlannedKernel& kernel, const char* content, size_t size) {
        const size_t place = bytes.size();
        bytes.insert(bytes.end(), content, content + size);
        bytes.resize((bytes.size() + kMapAlignment - 1) / kMapAlignment * kMapAlignment);
        kernel.parameters.push_back({place, size});
    }

    // Both tell whether it lies inside of the parameter.
    bool add_word(const PlannedKernel& kernel, size_t parameter, size_t place, Source source) {
        if (!has(kernel, parameter, place, sizeof(uint64_t))) return false;
        words.push_back({kernel.parameters[parameter].place + place, source});
        return true;
    }

    bool add_map(const PlannedKernel& kernel, size_t parameter, size_t place, size_t map) {
        if (!has(kernel, parameter, place, kMapBytes)) return false;
        if (place % kMapAlignment || map >= maps.size()) return false;
        uses.push_back({kernel.parameters[parameter].place + place, map});
        return true;
    }

   private:
    static bool has(const PlannedKernel& kernel, size_t parameter, size_t place, size_t size) {
        if (parameter >= kernel.parameters.size()) return false;
        const size_t all = kernel.parameters[parameter].size;
        return place <= all && size <= all - place;
    }
};

// A call of the driver that failed, or null.
struct Failed {
    const char* call;
    int status;
};

namespace detail {

// Device code stays loaded as long as the process: a captured CUDA graph may launch it at any time.
inline int load_code(const DriverApi& driver, const std::string& code, void** library) {
    static auto& mutex = *new std::mutex;
    static auto& all = *new std::map<std::string, void*>;
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = all.find(code);
    if (found != all.end()) {
        *library = found->second;
        return kSuccess;
    }
    const int status =
        driver.load_library(library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (!status) all.emplace(code, *library);
    return status;
}

// Whether the kernel takes just these parameters; true where the driver cannot tell.
inline bool takes(const DriverApi& driver, void* kernel, const PlannedKernel& planned) {
    if (!driver.kernel_param_info) return true;
    size_t offset = 0, size = 0;
    for (size_t index = 0; index < planned.parameters.size(); ++index) {
        if (driver.kernel_param_info(kernel, index, &offset, &size)) return false;
        if (size != planned.parameters[index].size) return false;
    }
    return driver.kernel_param_info(kernel, planned.parameters.size(), &offset, &size) != kSuccess;
}

inline Failed prepare(const DriverApi& driver, const PlannedKernel& planned, void* library,
                      int device, void** function) {
    void* kernel = nullptr;
    int status = driver.library_kernel(&kernel, library, planned.name.c_str());
    if (status) return {"cuLibraryGetKernel", status};
    if (!takes(driver, kernel, planned)) return {"cuKernelGetParamInfo", kInvalidValue};
    status = driver.set_kernel_attribute(kDynamicSharedBytes,
                                         static_cast<int>(planned.shared_bytes), kernel, device);
    if (status) return {"cuKernelSetAttribute", status};
    for (const LaunchAttribute& attribute : planned.attributes) {
        if (attribute.id != kClusterDims) continue;
        status = driver.set_kernel_attribute(kAnyClusterSize, 1, kernel, device);
        if (status) return {"cuKernelSetAttribute", status};
    }
    // Here and not at the first launch, which may be captured.
    status = driver.kernel_function(function, kernel);
    return {status ? "cuKernelGetFunction" : nullptr, status};
}

}  // namespace detail

// Loads the code into the current context, of this device; `functions` is in the order of kernels.
inline Failed load_kernels(const DriverApi& driver, const KernelPlan& plan, int device,
                           std::vector<void*>& functions) {
    if (driver.missing_for_kernels) return {driver.missing_for_kernels, kNotSupported};
    std::vector<void*> libraries(plan.binaries.size());
    for (size_t index = 0; index < libraries.size(); ++index) {
        const int status = detail::load_code(driver, plan.binaries[index], &libraries[index]);
        if (status) return {"cuLibraryLoadData", status};
    }
    functions.resize(plan.kernels.size());
    for (size_t index = 0; index < functions.size(); ++index) {
        const PlannedKernel& kernel = plan.kernels[index];
        const Failed failed = detail::prepare(driver, kernel, libraries[kernel.binary], device,
                                              &functions[index]);
        if (failed.call) return failed;
    }
    return {nullptr, kSuccess};
}

// Enqueues all launches on a stream.
inline Failed launch_kernels(const DriverApi& driver, const KernelPlan& plan,
                             const std::vector<void*>& functions, void* const* slots,
                             const char* workspace, void* stream) {
    alignas(kMapAlignment) unsigned char small[4096];
    void* pointers[64];
    std::unique_ptr<unsigned char, decltype(&std::free)> large(nullptr, &std::free);
    unsigned char* bytes = small;
    if (plan.bytes.size() > sizeof(small)) {
        large.reset(static_cast<unsigned char*>(aligned_alloc(kMapAlignment, plan.bytes.size())));
        bytes = large.get();
        if (!bytes) return {nullptr, kInvalidValue};
    }
    if (!plan.bytes.empty()) std::memcpy(bytes, plan.bytes.data(), plan.bytes.size());
    for (const KernelPlan::Word& word : plan.words) {
        const uint64_t address = word.source.find(slots, workspace);
        std::memcpy(bytes + word.place, &address, sizeof(address));
    }
    for (const KernelPlan::Use& use : plan.uses) {
        const PlannedMap& map = plan.maps[use.map];
        const int status = driver.encode_tensor_map(
            bytes + use.place, map.data_type, map.rank,
            reinterpret_cast<void*>(map.source.find(slots, workspace)), map.dims, map.strides,
            map.box, map.element_strides, map.modes[0], map.modes[1], map.modes[2], map.modes[3]);
        if (status) return {"cuTensorMapEncodeTiled", status};
    }
    for (size_t index = 0; index < functions.size(); ++index) {
        const PlannedKernel& kernel = plan.kernels[index];
        for (size_t each = 0; each < kernel.parameters.size(); ++each) {
            pointers[each] = bytes + kernel.parameters[each].place;
        }
        const LaunchConfig config{
            {kernel.grid[0], kernel.grid[1], kernel.grid[2]},
            {kernel.block[0], kernel.block[1], kernel.block[2]},
            kernel.shared_bytes,
            stream,
            kernel.attributes.data(),
            static_cast<unsigned>(kernel.attributes.size())};
        const int status = driver.launch_kernel(&config, functions[index], pointers, nullptr);
        if (status) return {"cuLaunchKernelEx", status};
    }
    return {nullptr, kSuccess};
}

}  // namespace cudnn_bindgen
