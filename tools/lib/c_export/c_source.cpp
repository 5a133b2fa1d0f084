#include "tools/lib/c_export/c_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"
#include "dsl/base/version.h"
#include "dsl/ir/extents.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "tools/lib/c_export/c_expression.h"
#include "tools/lib/c_export/c_parts.h"

namespace tessera::tools {
namespace {

constexpr int64_t kBarrierBytes = 256;

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// A literal; no line of the texts ends within it.
std::string quoted(const std::string& text) {
  return "\"" + replaced(replaced(text, "\\", "\\\\"), "\"", "\\\"") + "\"";
}

/// Within a comment.
std::string commented(const std::string& text) {
  return replaced(replaced(text, "*/", "* /"), "/*", "/ *");
}

std::string type_of(const CScalar& scalar) {
  if (scalar.type == DType::f32) return "float";
  if (scalar.type == DType::f64) return "double";
  if (scalar.type == DType::boolean) return "int";
  const std::string_view sign = is_integer(scalar.type) && is_signed(scalar.type) ? "" : "u";
  return fmt::format("{}int{}_t", sign, bits(scalar.type));
}

std::string meaning_of(const CScalar& scalar) {
  const bool is_coded = is_float(scalar.type) && bits(scalar.type) < 32;
  if (scalar.type == DType::boolean) return "0 or 1";
  return fmt::format("{}{}", is_coded ? "the bits of a " : "", name(scalar.type));
}

std::string text_of(const CNumber& number) {
  return number.formula.empty() ? number.code : number.formula;
}

class Writer {
 public:
  explicit Writer(const CCall& call) : call_(call) {}

  std::string header() const {
    const std::string guard = call_.name + "_H";  // as it is: names may differ in their case alone
    return fmt::format(
        "/* {0}.h: {1}.\n{2} */\n"
        "#ifndef TESSERA_{3}\n#define TESSERA_{3}\n\n#include <stddef.h>\n#include <stdint.h>\n\n"
        "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{4}\n{5}\n"
        "#ifdef __cplusplus\n}}\n#endif\n\n#endif\n",
        call_.name, kWrittenBy, introduction(), guard, kCTypes, declarations());
  }

  std::string source() {
    const std::string body =
        check_function() + targets() + call_function() + load_function() + workspace_function();
    const std::string facts = facts_table();
    return fmt::format(
        "/* {0}.c: {1}. See {0}.h. */\n"
        "#define _POSIX_C_SOURCE 200809L\n"
        "#include \"{0}.h\"\n\n#include <dlfcn.h>\n#include <pthread.h>\n#include <stdarg.h>\n"
        "#include <stdio.h>\n#include <string.h>\n\n"
        "#define TS_OP {2}\n"
        "enum {{ TS_TENSORS = {3}, TS_DIMS = {4}, TS_SCALARS = {5} }};\n"
        "{6}{7}",
        call_.name, kWrittenBy, quoted(call_.op), call_.tensors.size(),
        std::max<size_t>(call_.dims.size(), 1), std::max<size_t>(call_.scalars.size(), 1),
        c_parts_for(body, facts), body);
  }

  size_t num_kernels() const { return num_kernels_; }

 private:
  std::string introduction() const {
    std::string text = fmt::format(" *\n * {}: {}; {}.\n *\n", call_.op, commented(call_.purpose),
                                   commented(call_.origin));
    for (const std::string& sentence : call_.fixed) text += fmt::format(" * {}\n", sentence);
    std::vector<std::string> targets;
    for (const CTarget& target : call_.targets) targets.push_back(to_string(target.target));
    text += fmt::format(" * Targets: {}. By Tessera {}.\n *\n", fmt::join(targets, ", "),
                        TESSERA_VERSION);
    text += " * Build: cc -std=c11 -c " + call_.name +
            ".c; link with -ldl where dlopen is not in the C library. The driver is opened by the\n"
            " * first call. A call checks its arguments, launches into the stream and returns.\n";
    return text;
  }

  bool has_workspace() const { return call_.workspace || call_.has_barrier; }

  std::string parameters() const {
    std::vector<std::string> all;
    for (const CTensor& tensor : call_.tensors) {
      all.push_back("const tessera_tensor *" + tensor.name);
    }
    for (const CScalar& scalar : call_.scalars) {
      all.push_back(fmt::format("{} {}", type_of(scalar), scalar.name));
    }
    if (has_workspace()) {
      all.emplace_back("void *workspace");
      all.emplace_back("size_t workspace_bytes");
    }
    all.emplace_back("void *stream");
    all.emplace_back("tessera_error *error");
    return fmt::format("{}", fmt::join(all, ",\n    "));
  }

  std::string declarations() const {
    std::string text =
        "/* Returns TESSERA_OK, or the code that error (may be null) explains.\n *\n";
    for (const CTensor& tensor : call_.tensors) {
      text += fmt::format(" *   {}  {}, {}", tensor.name, commented(tensor.declared), tensor.role);
      std::vector<std::string> strides;
      for (const CNumber& stride : tensor.strides) strides.push_back(text_of(stride));
      text += fmt::format(", strides [{}]", commented(fmt::format("{}", fmt::join(strides, ", "))));
      text += fmt::format(", at a multiple of {} bytes", tensor.align);
      if (tensor.is_optional) text += "; may be null";
      if (tensor.allocated)
        text += fmt::format("; {} bytes with padding", text_of(*tensor.allocated));
      text += "\n";
    }
    for (const CDim& dim : call_.dims) {
      text += fmt::format(" *   {}  free", dim.name);
      if (dim.multiple > 1) text += fmt::format(", a multiple of {}", dim.multiple);
      if (!dim.limit.code.empty()) {
        text += fmt::format(", from {} up to {}", text_of(dim.least), text_of(dim.limit));
      }
      text += "\n";
    }
    for (const CScalar& scalar : call_.scalars) {
      text += fmt::format(" *   {}  {}\n", scalar.name, meaning_of(scalar));
    }
    if (has_workspace()) {
      text += fmt::format(
          " *   workspace  {}_workspace_bytes() bytes at a multiple of 256, undefined before and "
          "after\n",
          call_.name);
    }
    text += " *   stream  a CUstream; a default stream needs a current context */\n";
    text += fmt::format("int {}(\n    {});\n\n", call_.name, parameters());
    text += fmt::format(
        "/* Loads the kernels on the device of the current context: before the first call into a "
        "stream that is\n"
        " * captured. */\nint {}_load(tessera_error *error);\n",
        call_.name);
    if (has_workspace()) {
      text += fmt::format("\n{}size_t {}_workspace_bytes({});\n",
                          workspace_parameters() == "void"
                              ? ""
                              : "/* (size_t)-1 for a number of tokens that no call may have. */\n",
                          call_.name, workspace_parameters());
    }
    return text;
  }

  std::string workspace_parameters() const {
    if (!call_.workspace || call_.workspace->formula.empty()) return "void";
    return "int64_t " + call_.dims.at(0).name;
  }

  std::string facts_table() const {
    std::string text = "\nstatic const ts_fact ts_facts[TS_TENSORS] = {\n";
    for (const CTensor& tensor : call_.tensors) {
      text += fmt::format("    {{{}, {}, {}, {}, {}, {}, {}, {}}},\n", quoted(tensor.name),
                          quoted(tensor.declared), tensor.shape.size(), bits(tensor.dtype),
                          tensor.is_optional ? 1 : 0, tensor.is_output ? 1 : 0,
                          tensor.may_alias ? 1 : 0, tensor.align);
    }
    return text + "};\n";
  }

  /// Runs a call that returns a code, and returns the code if it is one of an error.
  static std::string step(const std::string& called) {
    return fmt::format("  status = {};\n  if (status != TESSERA_OK) return status;\n", called);
  }

  std::string check_function() const {
    std::string text =
        "\nstatic int ts_check_arguments(ts_call *call, const tessera_tensor *const *given) {\n"
        "  ts_view *const views = call->views;\n";
    for (size_t i = 0; i < call_.dims.size(); ++i) {
      std::vector<std::string> places;
      for (const CDim::Place& place : call_.dims[i].places) {
        places.push_back(
            fmt::format("{{{}, {}, {}}}", place.tensor, place.dim, place.is_stride ? 1 : 0));
      }
      text += fmt::format("  static const ts_place places_{}[] = {{{}}};\n", i,
                          fmt::join(places, ", "));
    }
    if (!call_.dims.empty()) text += "  const ts_place *sources[TS_DIMS];\n";
    text += "  int i, status, bad = 0;\n";
    text +=
        "  for (i = 0; i < TS_TENSORS; ++i) {\n"
        "    status = ts_take(&ts_facts[i], given[i], &views[i], call->error);\n"
        "    if (status != TESSERA_OK) return status;\n  }\n";
    for (size_t i = 0; i < call_.dims.size(); ++i) {
      const CDim& dim = call_.dims[i];
      text += step(
          fmt::format("ts_bind({0}, places_{1}, {2}, {3}, {4}, views, &call->dims[{1}], "
                      "&sources[{1}], call->error)",
                      quoted(dim.name), i, dim.places.size(), dim.multiple, c_integer(dim.most)));
    }
    for (size_t t = 0; t < call_.tensors.size(); ++t) text += expectations(t);
    if (has_output()) text += "  if (!ts_writes(views)) return TESSERA_OK;\n";
    for (size_t i = 0; i < call_.dims.size(); ++i) {
      const CDim& dim = call_.dims[i];
      const std::string limit = dim.limit.code.empty() ? c_integer(dim.most) : dim.limit.code;
      text +=
          step(fmt::format("ts_range({0}, sources[{1}], call->dims[{1}], {2}, {3}, {4}, "
                           "call->error)",
                           quoted(dim.name), i, dim.multiple, dim.least.code, limit));
    }
    text += step("ts_apart(views, call->error)");
    for (const CLimit& limit : call_.limits) {
      text += fmt::format(
          "  if ({0} > {1} || bad) {{\n    return ts_fail(call->error, TESSERA_ARGUMENT,\n"
          "                   \"tessera: \" TS_OP \": a persistent loop has more tiles than i32 "
          "counts\\n\"\n"
          "                   \"  expected  at most {1}: %s\\n  got       more\", {2});\n  }}\n",
          limit.code, limit.most, quoted(limit.text));
    }
    return text +
           "  if (bad) {\n    return ts_fail(call->error, TESSERA_ARGUMENT,\n"
           "                   \"tessera: \" TS_OP \": the extents are too large\\n\"\n"
           "                   \"  expected  numbers of the call that 64 bits hold\\n"
           "  got       more\");\n  }\n"
           "  return TESSERA_OK;\n}\n";
  }

  bool has_output() const {
    return std::any_of(call_.tensors.begin(), call_.tensors.end(),
                       [](const CTensor& tensor) { return tensor.is_output; });
  }

  std::string expectations(size_t t) const {
    const CTensor& tensor = call_.tensors[t];
    std::string text;
    for (const bool is_stride : {false, true}) {
      const std::vector<CNumber>& numbers = is_stride ? tensor.strides : tensor.shape;
      for (size_t d = 0; d < numbers.size(); ++d) {
        const CNumber& number = numbers[d];
        const bool is_index = !is_stride && tensor.is_index[d];
        const std::string formula = number.formula.empty() ? "" : " = " + number.formula;
        text += step(fmt::format(
            "ts_expect(views, {}, {}, {}, {}, &bad, {}, {}, call->error)", t, d, is_stride ? 1 : 0,
            number.code, is_index ? c_integer(ir::kLargestExtent) : "INT64_MAX", quoted(formula)));
      }
    }
    return text;
  }

  // ---- kernels and launches

  std::string targets() {
    std::string text;
    for (const CTarget& target : call_.targets) text += target_functions(target);
    return text;
  }

  std::string target_functions(const CTarget& target) {
    const std::string suffix = to_string(target.target);
    std::map<std::string, size_t> numbers;  // by cubin
    std::string codes, table;
    for (const CLaunch& launch : target.launches) {
      const runtime::Image& image = *launch.image;
      const size_t number = numbers.size();
      if (!numbers.emplace(image.cubin, number).second) continue;
      ++num_kernels_;
      codes += code_array(fmt::format("ts_code_{}_{}", suffix, number), image);
      const bool is_early = runtime::Runtime::instance().options().pdl &&
                            image.waits_for_previous && facts_of(image.target).has_pdl &&
                            !image.cooperative;
      table += fmt::format("    {{ts_code_{}_{}, {}, {}, {}, {}, {}, {}, NULL, 0}},\n", suffix,
                           number, quoted(image.entry), image.threads, image.shared_bytes,
                           image.cluster, is_early ? 1 : 0, image.cooperative ? 1 : 0);
    }
    std::string text = codes;
    text += fmt::format("\nstatic ts_kernel ts_kernels_{}[] = {{\n{}}};\n", suffix, table);
    text +=
        fmt::format("\nstatic int ts_launch_{}(const ts_call *call) {{\n  int status;\n", suffix);
    for (const CLaunch& launch : target.launches) {
      text += launch_block(
          launch, fmt::format("&ts_kernels_{}[{}]", suffix, numbers.at(launch.image->cubin)));
    }
    return text + "  return TESSERA_OK;\n}\n";
  }

  static std::string code_array(const std::string& name, const runtime::Image& image) {
    std::string bytes = image.cubin;
    bytes.resize((bytes.size() + 7) / 8 * 8, '\0');
    std::string text = fmt::format("\n/* {} for {}, {} bytes */\nstatic const uint64_t {}[] = {{",
                                   image.entry, to_string(image.target), image.cubin.size(), name);
    for (size_t i = 0; i < bytes.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, sizeof(word));
      text += fmt::format("{}{:#x},", i % 48 == 0 ? "\n    " : " ", word);
    }
    return text + "\n};\n";
  }

  std::string launch_block(const CLaunch& launch, const std::string& kernel) const {
    const runtime::Image& image = *launch.image;
    std::string text;
    for (const CPointer& pointer : launch.pointers) {
      text += fmt::format("    void *{} = {};\n", pointer.name, pointer.code);
    }
    for (const CSlot& slot : launch.slots) {
      text += fmt::format("    int64_t {} = {};\n", slot.name, slot.code);
    }
    text += fmt::format("    const int64_t grid[3] = {{{}}};\n", fmt::join(launch.grid, ", "));
    for (const CMap& map : launch.maps) text += fmt::format("    ts_map {};\n", map.name);
    if (image.cooperative) text += "    void *barrier;\n";
    std::vector<std::string> arguments;
    for (const CPointer& pointer : launch.pointers) arguments.push_back("&" + pointer.name);
    for (const CSlot& slot : launch.slots) arguments.push_back("&" + slot.name);
    for (const CMap& map : launch.maps) arguments.push_back("&" + map.name);
    if (image.cooperative) arguments.emplace_back("&barrier");
    text += fmt::format("    void *arguments[] = {{{}}};\n", fmt::join(arguments, ", "));
    for (const CMap& map : launch.maps) text += encoding(map);
    if (image.cooperative) {
      text += fmt::format("    barrier = call->workspace + {};\n", before_barrier());
      text +=
          indented(step(fmt::format("ts_grid_barrier(call, {}, grid, (char *)barrier)", kernel)));
    }
    text += indented(step(fmt::format("ts_launch(call, {}, grid, bad, arguments)", kernel)));
    const bool computes = text.find("&bad") != std::string::npos;
    return fmt::format("  {{ /* {} */\n    {}int bad = 0;\n{}  }}\n", image.entry,
                       computes ? "" : "const ", text);
  }

  static std::string indented(const std::string& text) {
    return "  " + replaced(text, "\n  ", "\n    ");
  }

  // Values of the driver's enumerations, as in runtime/tensor_map.cpp.
  static int code_of(DType dtype) {
    if (dtype == DType::f16) return 6;
    if (dtype == DType::f32) return 7;
    if (dtype == DType::bf16) return 9;
    const int bytes = bits(dtype) / 8;
    return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 4;
  }

  static std::string encoding(const CMap& map) {
    const size_t rank = map.box.size();
    const std::vector<std::string> none(rank, "0");
    const auto list = [](const auto& values) {
      return fmt::format("{{{}}}", fmt::join(values, ", "));
    };
    std::string text = "    {\n";
    text +=
        fmt::format("      const int64_t shape[] = {};\n", list(map.is_empty ? none : map.shape));
    text += fmt::format("      const int64_t strides[] = {};\n",
                        list(map.is_empty ? none : map.strides));
    text += fmt::format("      const unsigned box[] = {};\n", list(map.box));
    const int swizzle = map.swizzle == 0 ? 0 : map.swizzle == 32 ? 1 : map.swizzle == 64 ? 2 : 3;
    const std::string called =
        fmt::format("ts_encode(call, &{}, {}, {}, {}, {}, {}, shape, strides, box, {}, bad)",
                    map.name, quoted(map.is_empty ? map.name : map.tensor), code_of(map.dtype),
                    bits(map.dtype) / 8, map.is_empty ? "NULL" : map.tensor, rank, swizzle);
    return text + indented(indented(step(called))) + "    }\n";
  }

  // ---- the functions of the header

  /// A switch over the capabilities of devices, each with the most specific target that runs on it.
  std::string dispatch(const std::function<std::string(const CTarget&)>& action) const {
    constexpr int kFirst = 80, kEnd = 160;
    std::vector<std::string> cases(call_.targets.size());
    for (int capability = kFirst; capability < kEnd; ++capability) {
      for (const Target target : targets_that_run_on(capability / 10, capability % 10)) {
        const auto found = std::find_if(call_.targets.begin(), call_.targets.end(),
                                        [&](const CTarget& one) { return one.target == target; });
        if (found == call_.targets.end()) continue;
        cases[static_cast<size_t>(found - call_.targets.begin())] +=
            fmt::format("    case {}:\n", capability);
        break;
      }
    }
    std::string text = "  switch (call.capability) {\n";
    std::vector<std::string> names;
    for (size_t i = 0; i < cases.size(); ++i) {
      names.push_back(to_string(call_.targets[i].target));
      if (cases[i].empty()) continue;
      text += fmt::format("{}      {}\n      break;\n", cases[i], action(call_.targets[i]));
    }
    return text +
           fmt::format(
               "    default:\n"
               "      status = ts_fail(error, TESSERA_UNSUPPORTED,\n"
               "                       \"tessera: \" TS_OP \": no kernel of this file runs on "
               "the device\\n\"\n"
               "                       \"  expected  a device for {}\\n\"\n"
               "                       \"  got       compute capability %d.%d\",\n"
               "                       call.capability / 10, call.capability % 10);\n  }}\n",
               fmt::join(names, ", "));
  }

  static std::string begin_call() {
    return "  ts_call call;\n  int status;\n  memset(&call, 0, sizeof call);\n"
           "  if (error) memset(error, 0, sizeof *error);\n  call.error = error;\n";
  }

  std::string call_function() const {
    std::string text = fmt::format("\nint {}(\n    {}) {{\n", call_.name, parameters());
    text += "  const tessera_tensor *given[TS_TENSORS];\n" + begin_call();
    text += "  call.stream = stream;\n";
    for (size_t t = 0; t < call_.tensors.size(); ++t) {
      text += fmt::format("  given[{}] = {};\n", t, call_.tensors[t].name);
    }
    for (size_t i = 0; i < call_.scalars.size(); ++i) {
      const CScalar& scalar = call_.scalars[i];
      // Integers are compared with extents: with their sign.
      text += is_float(scalar.type)
                  ? fmt::format("  memcpy(&call.scalars[{0}], &{1}, sizeof {1});\n", i, scalar.name)
              : scalar.type == DType::boolean
                  ? fmt::format("  call.scalars[{}] = {} != 0;\n", i, scalar.name)
                  : fmt::format("  call.scalars[{}] = (int64_t){};\n", i, scalar.name);
    }
    text += step("ts_check_arguments(&call, given)");
    if (has_output()) text += "  if (!ts_writes(call.views)) return TESSERA_OK;\n";
    if (has_workspace()) {
      text += "  call.workspace = (char *)workspace;\n";
      text +=
          step(fmt::format("ts_needs_workspace(workspace, workspace_bytes, {}_workspace_bytes({}), "
                           "error)",
                           call_.name, workspace_parameters() == "void" ? "" : "call.dims[0]"));
    }
    text += step("ts_enter(&call)");
    text += dispatch([](const CTarget& target) {
      return fmt::format("status = ts_launch_{}(&call);", to_string(target.target));
    });
    return text + "  ts_leave();\n  return status;\n}\n";
  }

  std::string load_function() const {
    std::string text = fmt::format("\nint {}_load(tessera_error *error) {{\n", call_.name);
    text += begin_call() + "  {\n    size_t i;\n";
    std::string inner =
        step("ts_enter(&call)") + dispatch([](const CTarget& target) {
          const std::string table = "ts_kernels_" + to_string(target.target);
          return fmt::format(
              "for (i = 0; i < sizeof {0} / sizeof {0}[0] && status == TESSERA_OK; ++i) {{\n"
              "        status = ts_load(&call, &{0}[i]);\n      }}",
              table);
        });
    return text + indented(inner) + "  }\n  ts_leave();\n  return status;\n}\n";
  }

  /// Bytes of the workspace; with a barrier whole units of it.
  std::string before_barrier() const {
    if (!call_.workspace) return "0";
    if (!call_.has_barrier) return call_.workspace->code;
    return fmt::format("({0} + {1}) / {2} * {2}", call_.workspace->code, kBarrierBytes - 1,
                       kBarrierBytes);
  }

  std::string workspace_function() const {
    if (!has_workspace()) return "";
    const std::string parameters = workspace_parameters();
    std::string text = fmt::format("\nsize_t {}_workspace_bytes({}) {{\n", call_.name, parameters);
    std::string bytes = before_barrier();
    if (parameters != "void") {
      bytes = replaced(bytes, "call->dims[0]", call_.dims.at(0).name);
      text += "  int bad = 0;\n";
    }
    const int64_t barrier = call_.has_barrier ? kBarrierBytes : 0;
    if (parameters == "void") {
      return text + fmt::format("  return (size_t)({} + {});\n}}\n", bytes, barrier);
    }
    return text + fmt::format(
                      "  const int64_t bytes = {} + {};\n"
                      "  return bad || {} < 0 ? (size_t)-1 : (size_t)bytes;\n}}\n",
                      bytes, barrier, call_.dims.at(0).name);
  }

  const CCall& call_;
  size_t num_kernels_ = 0;
};

}  // namespace

CFiles c_files(const CCall& call) {
  Writer writer(call);
  CFiles files;
  files.name = call.name;
  files.source = writer.source();
  files.header = writer.header();
  files.num_kernels = writer.num_kernels();
  return files;
}

}  // namespace tessera::tools
