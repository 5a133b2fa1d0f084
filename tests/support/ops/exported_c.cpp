#include "tests/support/ops/exported_c.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "tests/support/child_process.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/calls/kernel_op.h"

namespace tessera::test {

CTensorArgument to_c(const TensorView& view) {
  CTensorArgument tensor{view.data, view.rank()};
  std::copy(view.shape.begin(), view.shape.end(), tensor.shape);
  std::copy(view.strides.begin(), view.strides.end(), tensor.strides);
  return tensor;
}

std::vector<CTensorArgument> c_arguments(const kernels::OpInfo& op,
                                         const kernels::Tensors& tensors) {
  std::vector<CTensorArgument> arguments;
  const auto add = [&](const std::string& name) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) arguments.push_back(to_c(found->second));
    return found != tensors.end();
  };
  for (const kernels::TensorInfo& info : op.tensors) {
    for (int i = 0; info.list && add(fmt::format("{}.{}", info.name, i)); ++i) {
    }
    const bool is_there = info.list || add(info.name);
    if (!is_there && op.family == tools::kOwnFamily) arguments.emplace_back();
  }
  return arguments;
}

bool has_c_compiler() {
  return run_program({"cc", "--version"}, {}).exit_code == 0;
}

void* compile_c(const std::string& source, const std::string& library, const std::string& include) {
  const ChildResult made =
      run_program({"cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC",
                   "-I", include, "-o", library, source},
                  {});
  if (made.exit_code != 0) throw std::runtime_error(made.output);
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw std::runtime_error(dlerror());
  return opened;
}

ExportedC::ExportedC(tools::CFiles files, const std::string& scalars,
                     const std::vector<Replacement>& replacements) {
  std::string source = files.source;
  for (const auto& [from, to] : replacements) {
    const size_t at = source.find(from);
    if (at == std::string::npos) throw std::runtime_error("not in the source: " + from);
    source.replace(at, from.size(), to);
  }
  const size_t from = files.header.find(fmt::format("int {}(", files.name));
  const std::string parameters = files.header.substr(from, files.header.find(')', from) - from);
  std::vector<std::string> words;
  for (size_t at = 0; (at = parameters.find("const tessera_tensor *", at)) != std::string::npos;
       ++at) {
    words.push_back(fmt::format("tensors[{}]", words.size()));
  }
  num_tensors_ = words.size();
  if (!scalars.empty()) words.push_back(scalars);
  if (parameters.find("void *workspace") != std::string::npos) {
    words.emplace_back("workspace, bytes");
  }
  words.emplace_back("stream, error");
  const std::string head =
      "\nint call_it(const tessera_tensor *const *tensors, void *workspace, size_t bytes, void "
      "*stream,\n"
      "            tessera_error *error)";
  source += fmt::format("{0};{0} {{\n  (void)workspace;\n  (void)bytes;\n  return {1}({2});\n}}\n",
                        head, files.name, fmt::join(words, ", "));
  const tests::TemporaryFolder folder;
  tests::write_text(folder.path(files.name + ".h"), files.header);
  tests::write_text(folder.path("call.c"), source);
  library_ = compile_c(folder.path("call.c"), folder.path("call.so"), folder.path(""));
  call_ = reinterpret_cast<Call>(symbol("call_it"));
}

ExportedC::~ExportedC() {
  dlclose(library_);
}

std::string ExportedC::operator()(const std::vector<CTensorArgument>& tensors, void* workspace,
                                  size_t workspace_bytes, void* stream) const {
  if (tensors.size() != num_tensors_) {
    throw std::runtime_error(
        fmt::format("{} tensors for {} parameters", tensors.size(), num_tensors_));
  }
  std::vector<const CTensorArgument*> pointers;
  for (const CTensorArgument& tensor : tensors) {
    pointers.push_back(tensor.data == nullptr && tensor.rank == 0 ? nullptr : &tensor);
  }
  Error error{};
  const int code = call_(pointers.data(), workspace, workspace_bytes, stream, &error);
  if (code != error.code) throw std::runtime_error("the code returned is not that of the error");
  if (code != 0 && call_(pointers.data(), workspace, workspace_bytes, stream, nullptr) != code) {
    throw std::runtime_error("another code where no text is wanted");
  }
  return error.text;
}

void* ExportedC::symbol(const char* name) const {
  return dlsym(library_, name);
}

}  // namespace tessera::test
