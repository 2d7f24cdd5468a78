// The tensors of one layer, and which layers attend, by architecture.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/make_model/model_spec.h"

namespace bulkhead::tools {

// The architectures Validate takes.
std::vector<std::string_view> ArchitectureNames();

// False for a layer that carries a state instead.
bool Attends(const ModelSpec& spec, uint32_t layer);

// Whether any layer of this architecture carries a state.
bool IsRecurrent(const ModelSpec& spec);

// In the order in which the file holds them.
void AddLayerTensors(const ModelSpec& spec, uint32_t layer, std::vector<TensorSpec>& tensors);

}  // namespace bulkhead::tools
