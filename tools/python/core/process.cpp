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
#include "runtime/counters.h"
#include "runtime/driver/device.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/launch_plan.h"
#include "tools/python/core/library.h"
#include "tools/python/core/options.h"
#include "tools/python/core/signals.h"
#include "tools/tessera/command.h"

namespace tessera::python {
namespace {

using runtime::Options;
using runtime::Runtime;

// ---- options

template <class T>
T word_of(const char* option, const std::string& given,
          std::initializer_list<std::pair<const char*, T>> words) {
  std::string expected;
  for (const auto& [word, value] : words) {
    if (given == word) return value;
    expected += (expected.empty() ? "" : ", ") + std::string(word);
  }
  refuse("", option, "", std::string("option '") + option + "' has a wrong value", expected, given);
}

std::function<void(const runtime::StepEvent&)> listener_of(nb::object function) {
  if (function.is_none()) return {};
  return
      [kept = std::make_shared<nb::object>(std::move(function))](const runtime::StepEvent& event) {
        const nb::gil_scoped_acquire held;
        try {
          nb::dict told;
          told["op"] = event.op;
          told["spec"] = event.spec;
          told["target"] = event.target;
          told["key"] = event.key;
          told["reason"] = event.reason;
          told["ended"] = event.ended;
          told["failed"] = event.failed;
          told["ms"] = event.ms;
          (*kept)(told);
        } catch (nb::python_error& error) {
          error.discard_as_unraisable("a listener of tessera.configure");
        }
      };
}

/// What an option of tessera.configure sets. Null: there is none of that name.
std::function<void(Options&)> setter_of(const std::string& name, nb::object value) {
  using runtime::CacheMode;
  using runtime::CacheTrust;
  using runtime::JitMode;
  using runtime::LogLevel;
  using runtime::TuneMode;
  const auto text = [&] { return nb::cast<std::string>(value); };
  const auto set = [](auto Options::*member, auto made) {
    return [member, made](Options& options) { options.*member = made; };
  };
  if (name == "cache_roots")
    return set(&Options::cache_roots, nb::cast<std::vector<std::string>>(value));
  if (name == "nvrtc_folders") {
    return set(&Options::nvrtc_folders, nb::cast<std::vector<std::string>>(value));
  }
  if (name == "cuda_homes")
    return set(&Options::cuda_homes, nb::cast<std::vector<std::string>>(value));
  if (name == "cache") {
    return set(&Options::cache, word_of<CacheMode>("cache", text(),
                                                   {{"rw", CacheMode::read_write},
                                                    {"ro", CacheMode::read_only},
                                                    {"off", CacheMode::off}}));
  }
  if (name == "trust") {
    return set(&Options::trust,
               word_of<CacheTrust>("trust", text(),
                                   {{"user", CacheTrust::user}, {"group", CacheTrust::group}}));
  }
  if (name == "jit") {
    return set(&Options::jit, word_of<JitMode>("jit", text(),
                                               {{"on", JitMode::on},
                                                {"warn", JitMode::warn},
                                                {"error", JitMode::error},
                                                {"off", JitMode::off}}));
  }
  if (name == "tune") {
    return set(&Options::tune,
               word_of<TuneMode>(
                   "tune", text(),
                   {{"off", TuneMode::off}, {"cached", TuneMode::cached}, {"on", TuneMode::on}}));
  }
  if (name == "log") {
    return set(&Options::log, word_of<LogLevel>("log", text(),
                                                {{"error", LogLevel::error},
                                                 {"warn", LogLevel::warn},
                                                 {"info", LogLevel::info},
                                                 {"debug", LogLevel::debug}}));
  }
  for (const auto& [word, member] : {std::pair{"cache_key_file", &Options::cache_key_file},
                                     {"record", &Options::record},
                                     {"nvrtc", &Options::nvrtc},
                                     {"arch", &Options::arch},
                                     {"dump_dir", &Options::dump_dir},
                                     {"pass_dump_dir", &Options::pass_dump_dir},
                                     {"override_dir", &Options::override_dir},
                                     {"tune_dir", &Options::tune_dir}}) {
    if (name == word) return set(member, text());
  }
  for (const auto& [word, member] : {std::pair{"pdl", &Options::pdl},
                                     {"line_info", &Options::line_info},
                                     {"check_spills", &Options::check_spills},
                                     {"tune_may_change_bits", &Options::tune_may_change_bits}}) {
    if (name == word) return set(member, nb::cast<bool>(value));
  }
  for (const auto& [word, member] : {std::pair{"cache_max_bytes", &Options::cache_max_bytes},
                                     {"cache_max_entries", &Options::cache_max_entries}}) {
    if (name == word) return set(member, nb::cast<int64_t>(value));
  }
  for (const auto& [word, member] :
       {std::pair{"peer_patience_ms", &Options::peer_patience_ms}, {"jobs", &Options::jobs}}) {
    if (name == word) return set(member, nb::cast<int>(value));
  }
  if (name == "traps") {
    return set(&Options::traps,
               value.is_none() ? std::optional<bool>() : std::optional(nb::cast<bool>(value)));
  }
  if (name == "on_compile") return set(&Options::on_compile, listener_of(value));
  if (name == "on_load") return set(&Options::on_load, listener_of(value));
  return {};
}

void configure(const nb::dict& given) {
  std::vector<std::function<void(Options&)>> setters;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    std::function<void(Options&)> setter;
    try {
      setter = setter_of(name, nb::borrow(value));
    } catch (const nb::cast_error&) {
      refuse("", name, "TYPE", "option '" + name + "' has a value of the wrong type",
             "what runtime/options.h says", describe(value));
    }
    if (!setter) {
      refuse("", name, "NAME", "unknown option '" + name + "'", "the names of runtime/options.h",
             name);
    }
    setters.push_back(std::move(setter));
  }
  const nb::gil_scoped_release released;
  Runtime::configure([setters](Options& options) {
    for (const auto& setter : setters) setter(options);
  });
}

// ---- messages

// Python's logging, as long as there is a Python.
nb::object& log_function() {
  static nb::object& function = *new nb::object;
  return function;
}
std::atomic<bool> g_python_ends = false;

void log_to_python(runtime::LogLevel level, std::string_view message) {
  if (g_python_ends) {
    runtime::print_to_stderr(level, message);
    return;
  }
  const nb::gil_scoped_acquire held;
  try {
    log_function()(std::string(runtime::name(level)), std::string(message));
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("logging of tessera");
  }
}

// ---- counters

nb::dict counters() {
  // What makes the Runtime may write messages, for which another thread needs the lock.
  const runtime::CounterValues now = [] {
    const nb::gil_scoped_release released;
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
  kernels::jit::prepare([&] { call(); });
}

void prepare_all(const std::vector<nb::object>& calls, int jobs) {
  std::vector<std::function<void()>> functions;
  for (const nb::object& call : calls) {
    functions.push_back([&call] {
      const nb::gil_scoped_acquire held;
      call();
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
    refuse("tune", "budget", "", "argument 'budget' has a wrong value", "seconds above 0",
           fmt::format("{}", budget));
  }
  kernels::jit::TuneReport report;
  {
    const nb::gil_scoped_release released;  // listeners hear of compiles on other threads
    report = kernels::jit::tune::run(
        [&] {
          const nb::gil_scoped_acquire held;
          call();
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
  const nb::gil_scoped_release released;
  return kernels::jit::take_value_errors(device, stream);
}

int run_program(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> pointers;
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const nb::gil_scoped_release released;
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
      "seal", [] { Runtime::instance().seal(); }, nb::call_guard<nb::gil_scoped_release>());
  module.def("counters", &counters);
  module.def("prepare", &prepare, nb::arg("call"));
  module.def("prepare_all", &prepare_all, nb::arg("calls"), nb::arg("jobs"));
  module.def("tune", &tune, nb::arg("call"), nb::arg("budget"), nb::arg("store"));
  module.def("take_value_errors", &take_value_errors, nb::arg("device"), nb::arg("stream").none());
  module.def(
      "num_sms", [](int device) { return runtime::device_info(device).num_sms; },
      nb::arg("device"));
  module.def("run_program", &run_program, nb::arg("words"),
             "Runs the program `tessera`; words[0] is its name. Returns the exit code.");
  module.def("doctor", [] {
    const nb::gil_scoped_release released;
    return tools::doctor_text();
  });
  add_launch_plan(module);
}

}  // namespace tessera::python
