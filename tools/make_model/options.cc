#include "tools/make_model/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "tools/make_model/layer_tensors.h"

namespace bulkhead::tools {
namespace {

absl::Status Invalid(const std::string& message) { return Error(Reason::kInvalidRequest, message); }

template <typename T>
absl::Status ParseNumber(std::string_view option, std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error == std::errc() && end == text.data() + text.size()) return absl::OkStatus();
  return Invalid(fmt::format("{}: \"{}\" is not a number in range", option, text));
}

absl::Status ParseType(std::string_view text, engine::WeightType& out) {
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  using enum engine::WeightType;
  for (const engine::WeightType type : {kF32, kF16, kBF16, kQ8_0, kQ5_0, kQ4_0, kQ6_K, kQ4_K}) {
    if (NameOf(type) == name) {
      out = type;
      return absl::OkStatus();
    }
  }
  return Invalid(fmt::format("--type: \"{}\" is none of f32, f16, bf16, q8_0, q5_0, q4_0, q6_k, q4_k", text));
}

struct NumberOption {
  std::string_view name;
  uint32_t ModelSpec::*field;
  std::string_view help;
};

constexpr std::array kNumbers = {
    NumberOption{"--layers", &ModelSpec::layers, "transformer blocks"},
    NumberOption{"--embedding", &ModelSpec::embedding, "width of the residual stream"},
    NumberOption{"--feed-forward", &ModelSpec::feed_forward, "width of the feed-forward part"},
    NumberOption{"--heads", &ModelSpec::heads, "query heads"},
    NumberOption{"--kv-heads", &ModelSpec::kv_heads, "key and value heads; divides --heads"},
    NumberOption{"--head", &ModelSpec::head, "size of one head"},
    NumberOption{"--attention-every", &ModelSpec::attention_every, "of a hybrid's layers, every Nth attends"},
    NumberOption{"--inner", &ModelSpec::inner, "width of what recurrent layers mix"},
    NumberOption{"--state", &ModelSpec::state, "columns of a head's state"},
    NumberOption{"--state-heads", &ModelSpec::state_heads, "heads of the state; divides --inner"},
    NumberOption{"--state-groups", &ModelSpec::state_groups, "groups of those; divides --state-heads"},
    NumberOption{"--taps", &ModelSpec::taps, "tokens the convolution sees"},
    NumberOption{"--experts", &ModelSpec::experts, "experts of a mixture; --feed-forward is one's width"},
    NumberOption{"--experts-used", &ModelSpec::experts_used, "experts of each token"},
    NumberOption{"--context", &ModelSpec::context, "trained context"},
    NumberOption{"--vocabulary", &ModelSpec::vocabulary, "pieces, at least 320"},
};

struct FlagOption {
  std::string_view name;
  bool ModelSpec::*field;
  bool value;
  std::string_view help;
};

constexpr std::array kFlags = {
    FlagOption{"--tied", &ModelSpec::tied, true, "the embedding serves as output matrix"},
    FlagOption{"--untied", &ModelSpec::tied, false, "an output matrix of its own"},
    FlagOption{"--no-template", &ModelSpec::chatml, false, "no chat template in the file"},
};

absl::Status ApplyValue(std::string_view option, std::string_view value, ModelSpec& spec) {
  for (const NumberOption& number : kNumbers) {
    if (number.name == option) return ParseNumber(option, value, spec.*number.field);
  }
  if (option == "--type") return ParseType(value, spec.type);
  if (option == "--seed") return ParseNumber(option, value, spec.seed);
  if (option == "--rope-base") return ParseNumber(option, value, spec.rope_base);
  if (option == "--rms-epsilon") return ParseNumber(option, value, spec.rms_epsilon);
  std::string* const text = option == "--arch"        ? &spec.architecture
                            : option == "--tokenizer" ? &spec.tokenizer
                            : option == "--name"      ? &spec.name
                                                      : nullptr;
  if (text == nullptr) return Invalid(fmt::format("{}: no such option (--help lists them)", option));
  *text = value;
  return absl::OkStatus();
}

bool ApplyFlag(std::string_view option, ModelSpec& spec) {
  for (const FlagOption& flag : kFlags) {
    if (flag.name != option) continue;
    spec.*flag.field = flag.value;
    return true;
  }
  return false;
}

}  // namespace

std::string MakeModelHelp() {
  std::string help = "usage: make_model [options] OUTPUT.gguf\n\nWrites a GGUF model of random weights.\n\n";
  const auto line = [&](std::string_view option, std::string_view text) {
    help += fmt::format("  {:<22} {}\n", option, text);
  };
  line("--shape NAME", fmt::format("start from a known shape: {} (comes first)", fmt::join(ShapeNames(), ", ")));
  line("--arch NAME", fmt::format("{}", fmt::join(ArchitectureNames(), ", ")));
  line("--type NAME", "f32, f16, bf16, q8_0, q5_0, q4_0, q6_k or q4_k; norms stay f32");
  for (const NumberOption& number : kNumbers) line(fmt::format("{} N", number.name), number.help);
  line("--tokenizer NAME", "bpe (byte-level, qwen2 pre-tokeniser) or spm (byte fallback)");
  for (const FlagOption& flag : kFlags) line(flag.name, flag.help);
  line("--rope-base X", "frequency base of the rotary embedding");
  line("--rms-epsilon X", "epsilon of the norms");
  line("--name TEXT", "general.name");
  line("--seed N", "of weights and vocabulary");
  return help;
}

absl::StatusOr<MakeModelOptions> ParseMakeModelOptions(std::span<const std::string_view> arguments) {
  MakeModelOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      return options;
    }
    if (!argument.starts_with("--")) {
      if (!options.path.empty()) return Invalid(fmt::format("{}: a second output file", argument));
      options.path = argument;
      continue;
    }
    if (ApplyFlag(argument, options.spec)) continue;
    if (i + 1 == arguments.size()) return Invalid(fmt::format("{}: its value is missing", argument));
    const std::string_view value = arguments[++i];
    if (argument == "--shape") {
      ASSIGN_OR_RETURN(options.spec, NamedShape(value));
    } else {
      RETURN_IF_ERROR(ApplyValue(argument, value, options.spec));
    }
  }
  if (options.path.empty()) return Invalid("no output file (--help tells more)");
  RETURN_IF_ERROR(Validate(options.spec));
  return options;
}

}  // namespace bulkhead::tools
