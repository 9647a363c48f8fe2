// Which words of a launch are operand addresses: learnt from three captures, then proven.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "launch_nodes.hpp"

namespace cudnn_bindgen {

// A launch and the addresses it was captured with.
struct Sample {
    Launch launch;
    std::vector<uint64_t> addresses;
};

namespace detail {

inline uint64_t load_word(const LaunchNode& node, size_t offset) {
    uint64_t word;
    std::memcpy(&word, &node.payload[offset], sizeof(word));
    return word;
}

inline void store_word(LaunchNode& node, size_t offset, uint64_t word) {
    std::memcpy(&node.payload[offset], &word, sizeof(word));
}

// Finds the one operand whose shifts explain how a word changed; -1: none, -2: more than one.
inline int explain(uint64_t a, uint64_t b, uint64_t c, const Sample& first, const Sample& second,
                   const Sample& third) {
    int found = -1;
    for (size_t operand = 0; operand < first.addresses.size(); ++operand) {
        if (b - a == second.addresses[operand] - first.addresses[operand] &&
            c - a == third.addresses[operand] - first.addresses[operand]) {
            if (found >= 0) return -2;
            found = static_cast<int>(operand);
        }
    }
    return found;
}

inline void patch(std::vector<LaunchNode>& nodes, const std::vector<Patch>& patches,
                  const std::vector<uint64_t>& addresses) {
    for (const Patch& each : patches) {
        store_word(nodes[each.node], each.offset, addresses[each.operand] + each.addend);
    }
}

inline bool same_after_patching(const Sample& first, const Sample& other,
                                const std::vector<Patch>& patches) {
    std::vector<LaunchNode> nodes = first.launch.nodes;
    patch(nodes, patches, other.addresses);
    for (size_t index = 0; index < nodes.size(); ++index) {
        if (nodes[index].payload != other.launch.nodes[index].payload) return false;
    }
    return true;
}

inline Reason describe_change(size_t node, int type, size_t offset, uint64_t second,
                              uint64_t third) {
    return "the word at byte " + std::to_string(offset) + " of node " + std::to_string(node) +
           " (type " + std::to_string(type) + ") changed by " +
           std::to_string(static_cast<int64_t>(second)) + " and " +
           std::to_string(static_cast<int64_t>(third)) + ", which no operand's address explains";
}

}  // namespace detail

// Learns from three samples where the addresses stand, and proves it: the first one's payloads,
// patched to the addresses of either other, must be the other's, byte for byte.
inline Reason find_patches(const Sample& first, const Sample& second, const Sample& third,
                           std::vector<Patch>& patches) {
    for (const Sample* other : {&second, &third}) {
        if (other->launch.nodes.size() != first.launch.nodes.size()) {
            return "the number of nodes depends on addresses";
        }
        if (!(other->launch.edges == first.launch.edges)) return "edges depend on addresses";
        for (size_t index = 0; index < first.launch.nodes.size(); ++index) {
            if (!first.launch.nodes[index].same_but_payload(other->launch.nodes[index])) {
                return "function, grid or attributes of node " + std::to_string(index) +
                       " depend on addresses";
            }
        }
    }
    for (size_t index = 0; index < first.launch.nodes.size(); ++index) {
        const LaunchNode& node = first.launch.nodes[index];
        for (size_t offset = 0; offset + 8 <= node.payload.size(); offset += 8) {
            const uint64_t a = detail::load_word(node, offset);
            const uint64_t b = detail::load_word(second.launch.nodes[index], offset);
            const uint64_t c = detail::load_word(third.launch.nodes[index], offset);
            if (a == b && a == c) continue;
            const int operand = detail::explain(a, b, c, first, second, third);
            if (operand < 0) {
                return detail::describe_change(index, node.type, offset, b - a, c - a);
            }
            patches.push_back({static_cast<uint32_t>(index), static_cast<uint32_t>(offset),
                               static_cast<uint32_t>(operand), a - first.addresses[operand]});
        }
    }
    if (!detail::same_after_patching(first, second, patches) ||
        !detail::same_after_patching(first, third, patches)) {
        return "patched parameters are not those of a fresh capture";
    }
    return {};
}

}  // namespace cudnn_bindgen
