#include "tools/python/core/process.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>

#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <optional>

#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "kernels/jit/tune_run.h"
#include "kernels/moe_rows.h"
#include "runtime/counters.h"
#include "runtime/driver/device.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "tools/python/core/configure.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/launch_plan.h"
#include "tools/python/core/library.h"
#include "tools/python/core/options.h"
#include "tools/python/core/signals.h"
#include "tools/tessera/command.h"

namespace tessera::python {
namespace {

using runtime::Options;
using runtime::Runtime;

// ---- messages

// Python's logging, as long as there is a Python.
nb::object& log_function() {
  static nb::object& function = *new nb::object;
  return function;
}

void log_to_python(runtime::LogLevel level, std::string_view message) {
  if (g_python_ends) {
    runtime::print_to_stderr(level, message);
    return;
  }
  const WithInterpreterLock held;
  const nb::object function = log_function();
  try {
    call_python([&] { function(std::string(runtime::name(level)), std::string(message)); });
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("logging of tessera");
  }
}

// ---- counters

nb::dict counters() {
  // Making the Runtime may write messages, for which another thread needs the lock.
  const runtime::CounterValues now = [] {
    const WithoutInterpreterLock released;
    return Runtime::instance().counters();
  }();
  nb::dict values;
  values["memory_hits"] = now.memory_hits;
  values["disk_hits"] = now.disk_hits;
  nb::list roots;
  for (const int64_t hits : now.root_hits) roots.append(hits);
  values["root_hits"] = roots;
  values["misses"] = now.misses;
  values["compiles"] = now.compiles;
  values["compile_ms"] = now.compile_ms;
  values["waits"] = now.waits;
  values["peer_waits"] = now.peer_waits;
  values["corrupt_entries"] = now.corrupt_entries;
  values["failed_publishes"] = now.failed_publishes;
  values["published_bytes"] = now.published_bytes;
  values["evictions"] = now.evictions;
  values["loads"] = now.loads;
  values["load_ms"] = now.load_ms;
  return values;
}

// ---- warm-up

void prepare(const nb::object& call) {
  kernels::jit::prepare([&] { call_python([&] { call(); }); });
}

void prepare_all(const std::vector<nb::object>& calls, int jobs) {
  std::vector<std::function<void()>> functions;
  for (const nb::object& call : calls) {
    functions.push_back([&call] {
      const WithInterpreterLock held;
      call_python([&] { call(); });
    });
  }
  run_interruptibly_elsewhere([&](std::stop_token stop) {
    kernels::jit::prepare_all(functions, {.jobs = jobs, .stop = std::move(stop)});
  });
}

nb::dict number_dict(const runtime::NamedValues& values) {
  nb::dict made;
  for (const auto& [name, value] : values) made[name.c_str()] = value;
  return made;
}

nb::dict entry_dict(const runtime::TunedEntry& entry) {
  nb::list candidates;
  for (const runtime::TunedCandidate& one : entry.candidates) {
    nb::dict made;
    made["choice"] = one.choice;
    made["us"] = one.us;
    made["spread"] = one.spread;
    made["samples"] = one.samples;
    made["dropped"] = one.dropped;
    candidates.append(made);
  }
  nb::dict made;
  made["op"] = entry.key.op;
  made["spec"] = number_dict(entry.key.spec);
  made["bucket"] = entry.key.bucket;
  made["device"] = entry.key.device;
  made["choice"] = number_dict(entry.choice);
  made["us"] = entry.us;
  made["standard_us"] = entry.standard_us;
  made["candidates"] = candidates;
  return made;
}

/// (entries, differing, not stored) of jit::TuneReport.
nb::tuple tune(const nb::object& call, double budget, bool store) {
  if (!(budget > 0)) {
    refuse("tune", "budget", "VALUE", "argument 'budget' has a wrong value", "seconds above 0",
           fmt::format("{}", budget));
  }
  kernels::jit::TuneReport report;
  {
    const WithoutInterpreterLock released;  // listeners hear of compiles on other threads
    report = kernels::jit::tune::run(
        [&] {
          const WithInterpreterLock held;
          call_python([&] { call(); });
        },
        {.budget_s = budget, .store = store});
  }
  nb::list entries;
  for (const runtime::TunedEntry& entry : report.entries) entries.append(entry_dict(entry));
  return nb::make_tuple(entries, report.differing, report.not_stored);
}

std::vector<std::string> take_value_errors(int ordinal, const nb::object& given) {
  const Device device = Device::cuda(ordinal);
  kernels::Stream stream = nullptr;
  if (!given.is_none()) {
    stream = stream_of(given.ptr(), "take_value_errors");
  } else if (PyDict_GetItemString(PyImport_GetModuleDict(), "torch") != nullptr) {
    stream = torch_library().current_stream(device);
  }
  const WithoutInterpreterLock released;
  return kernels::jit::take_value_errors(device, stream);
}

int run_program(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> pointers;
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const WithoutInterpreterLock released;
  return tools::run_program(static_cast<int>(words.size()), pointers.data());
}

}  // namespace

void add_process(nb::module_& module) {
  module.def("configure", &configure, nb::arg("options"));
  module.def(
      "begin",
      [](nb::object function, const std::vector<std::string>& nvrtc_folders) {
        log_function() = std::move(function);
        Runtime::configure([nvrtc_folders](Options& options) {
          options.log_sink = log_to_python;
          options.nvrtc_folders = nvrtc_folders;
        });
      },
      nb::arg("function"), nb::arg("nvrtc_folders"),
      "What holds until configure says otherwise: messages go to function(level, message), and "
      "these "
      "folders may hold libnvrtc.");
  module.def(
      "python_ends", [] { g_python_ends = true; }, "From now on messages go to stderr.");
  module.def(
      "seal", [] { Runtime::instance().seal(); }, nb::call_guard<WithoutInterpreterLock>());
  module.def("counters", &counters);
  module.def("prepare", &prepare, nb::arg("call"));
  module.def("prepare_all", &prepare_all, nb::arg("calls"), nb::arg("jobs"));
  module.def("tune", &tune, nb::arg("call"), nb::arg("budget"), nb::arg("store"));
  module.def("take_value_errors", &take_value_errors, nb::arg("device"), nb::arg("stream").none());
  module.def(
      "num_sms", [](int device) { return runtime::device_info(device).num_sms; }, nb::arg("device"),
      nb::call_guard<WithoutInterpreterLock>());
  module.def("moe_rows", &kernels::moe_rows, nb::arg("num_tokens"), nb::arg("num_topk"),
             nb::arg("num_experts"), nb::arg("alignment"));
  module.def("run_program", &run_program, nb::arg("words"),
             "Runs the program `tessera`; words[0] is its name. Returns the exit code.");
  module.def("doctor", [] {
    const WithoutInterpreterLock released;
    return tools::doctor_text();
  });
  add_launch_plan(module);
}

}  // namespace tessera::python
