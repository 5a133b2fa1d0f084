#include "tools/python/core/configure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/nearest_name.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"

namespace tessera::python {
namespace {

using runtime::CacheMode;
using runtime::CacheTrust;
using runtime::JitMode;
using runtime::LogLevel;
using runtime::Options;
using runtime::StepEvent;
using runtime::TuneMode;

[[noreturn]] void refuse_type(const std::string& option, std::string expected, nb::handle value) {
  refuse("", option, "TYPE", "option '" + option + "' has a value of the wrong type",
         std::move(expected), describe(value));
}

[[noreturn]] void refuse_value(const std::string& option, std::string expected, nb::handle value) {
  refuse("", option, "VALUE", "option '" + option + "' has a wrong value", std::move(expected),
         describe(value));
}

void read(const std::string& option, nb::handle value, std::string& text) {
  constexpr size_t kMost = 4095;  // bytes of a path
  if (!PyUnicode_Check(value.ptr())) refuse_type(option, "str", value);
  text = text_of(value);
  if (text.size() > kMost || text.find('\0') != std::string::npos) {
    refuse_value(option, fmt::format("a str of at most {} bytes, none of them 0", kMost), value);
  }
}

void read(const std::string& option, nb::handle value, std::vector<std::string>& texts) {
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
    refuse_type(option, "a list of str", value);
  }
  for (const nb::handle item : owned(PySequence_Tuple(value.ptr()))) {
    read(option, item, texts.emplace_back());
  }
}

void read(const std::string& option, nb::handle value, bool& flag) {
  if (!PyBool_Check(value.ptr())) refuse_type(option, "bool", value);
  flag = value.ptr() == Py_True;
}

void read(const std::string& option, nb::handle value, std::optional<bool>& flag) {
  if (value.is_none()) return;
  if (!PyBool_Check(value.ptr())) refuse_type(option, "bool or None", value);
  flag = value.ptr() == Py_True;
}

template <class Integer>
void read_integer(const std::string& option, nb::handle value, Integer& integer) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) refuse_type(option, "int", value);
  if (!nb::try_cast(owned(PyNumber_Index(value.ptr())), integer)) {
    refuse_value(option, fmt::format("an integer of {} bits", 8 * sizeof(Integer)), value);
  }
}
void read(const std::string& option, nb::handle value, int& integer) {
  read_integer(option, value, integer);
}
void read(const std::string& option, nb::handle value, int64_t& integer) {
  read_integer(option, value, integer);
}

void read(const std::string& option, nb::handle value,
          std::function<void(const StepEvent&)>& listener) {
  if (value.is_none()) return;
  if (PyCallable_Check(value.ptr()) == 0) {
    refuse_type(option, "a function of a dict, or None", value);
  }
  listener = [kept = std::make_shared<nb::object>(nb::borrow(value))](const StepEvent& event) {
    if (g_python_ends) return;
    const WithInterpreterLock held;
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
      call_python([&] { (*kept)(told); });
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a listener of tessera.configure");
    }
  };
}

using Setter = std::function<void(Options&)>;
using MakeSetter = std::function<Setter(const std::string& option, nb::handle value)>;

template <class T>
MakeSetter value_of(T Options::*member) {
  return [member](const std::string& option, nb::handle value) -> Setter {
    T made{};
    read(option, value, made);
    return [member, made](Options& options) { options.*member = made; };
  };
}

template <class T>
MakeSetter word_of(T Options::*member, std::map<std::string, T> words) {
  return [member, words](const std::string& option, nb::handle value) -> Setter {
    std::string given, expected;
    read(option, value, given);
    if (const auto found = words.find(given); found != words.end()) {
      return [member, meaning = found->second](Options& options) { options.*member = meaning; };
    }
    for (const auto& [word, meaning] : words) expected += (expected.empty() ? "" : ", ") + word;
    refuse_value(option, expected, value);
  };
}

const std::map<std::string, MakeSetter>& known_options() {
  static const auto& known = *new std::map<std::string, MakeSetter>{
      {"arch", value_of(&Options::arch)},
      {"cache", word_of<CacheMode>(&Options::cache, {{"rw", CacheMode::read_write},
                                                     {"ro", CacheMode::read_only},
                                                     {"off", CacheMode::off}})},
      {"cache_key_file", value_of(&Options::cache_key_file)},
      {"cache_max_bytes", value_of(&Options::cache_max_bytes)},
      {"cache_max_entries", value_of(&Options::cache_max_entries)},
      {"cache_roots", value_of(&Options::cache_roots)},
      {"check_spills", value_of(&Options::check_spills)},
      {"cuda_homes", value_of(&Options::cuda_homes)},
      {"dump_dir", value_of(&Options::dump_dir)},
      {"jit", word_of<JitMode>(&Options::jit, {{"on", JitMode::on},
                                               {"warn", JitMode::warn},
                                               {"error", JitMode::error},
                                               {"off", JitMode::off}})},
      {"jobs", value_of(&Options::jobs)},
      {"line_info", value_of(&Options::line_info)},
      {"log", word_of<LogLevel>(&Options::log, {{"error", LogLevel::error},
                                                {"warn", LogLevel::warn},
                                                {"info", LogLevel::info},
                                                {"debug", LogLevel::debug}})},
      {"nvrtc", value_of(&Options::nvrtc)},
      {"nvrtc_folders", value_of(&Options::nvrtc_folders)},
      {"on_compile", value_of(&Options::on_compile)},
      {"on_load", value_of(&Options::on_load)},
      {"override_dir", value_of(&Options::override_dir)},
      {"pass_dump_dir", value_of(&Options::pass_dump_dir)},
      {"pdl", value_of(&Options::pdl)},
      {"peer_patience_ms", value_of(&Options::peer_patience_ms)},
      {"record", value_of(&Options::record)},
      {"traps", value_of(&Options::traps)},
      {"trust", word_of<CacheTrust>(&Options::trust,
                                    {{"user", CacheTrust::user}, {"group", CacheTrust::group}})},
      {"tune", word_of<TuneMode>(
                   &Options::tune,
                   {{"off", TuneMode::off}, {"cached", TuneMode::cached}, {"on", TuneMode::on}})},
      {"tune_dir", value_of(&Options::tune_dir)},
      {"tune_may_change_bits", value_of(&Options::tune_may_change_bits)},
  };
  return known;
}

}  // namespace

void configure(const nb::dict& options) {
  std::vector<Setter> setters;
  const nb::list items = options.items();  // a copy: reading a value may run Python code
  for (const nb::handle item : items) {
    const nb::object key = item[0], value = item[1];
    const std::string name = str_of(key);
    const auto known = known_options().find(name);
    if (known == known_options().end()) {
      std::vector<std::string> names;
      for (const auto& [word, make] : known_options()) names.push_back(word);
      refuse("", name, "NAME", "unknown option '" + name + "'",
             fmt::format("{}", fmt::join(names, ", ")), name, did_you_mean(name, names));
    }
    setters.push_back(known->second(name, value));
  }
  const auto change = [setters](Options& changed) {
    for (const Setter& setter : setters) setter(changed);
  };
  Options checked;
  change(checked);
  runtime::check_options(checked);
  const WithoutInterpreterLock released;
  runtime::Runtime::configure(change);
}

}  // namespace tessera::python
