// `tessera tune`: the fastest tile sizes of the ops on this GPU, and those that are stored.

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/jit/target.h"
#include "runtime/driver/device.h"
#include "runtime/runtime.h"
#include "tools/lib/calls/op_choice.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/own_kernel.h"
#include "tools/lib/tune/tune_prune.h"
#include "tools/lib/tune/tuned_entries.h"
#include "tools/lib/tune/tuner.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct TuneWords {
  std::string op, cases, specs, out, json, gpu, arch = "sm_90a";
  std::string file, other;  // of diff, export and import
  std::vector<std::string> cases_of, params;
  double budget = 60;
  int device = 0;
  bool dry_run = false, as_json = false, no_prune = false;
};

std::vector<ChosenCase> cases_to_tune(const TuneWords& words, runtime::Target target) {
  std::vector<std::string> unknown;
  std::vector<ChosenCase> cases = reading_arguments([&] {
    if (!words.specs.empty()) return cases_in(words.specs, program_ops(), target, unknown);
    const std::vector<const kernels::OpInfo*> chosen = choose_ops(program_ops(), words.op);
    return words.cases_of.empty() ? choose_cases(chosen, &kernels::OpInfo::bench, words.cases)
                                  : cases_of(chosen, words.cases_of);
  });
  for (const std::string& line : unknown) tell("tessera: " + line + "\n");
  reading_arguments([&] {
    for (ChosenCase& one : cases) one.one = with_params(*one.op, one.one, words.params);
  });
  return cases;
}

/// Says what would be measured; needs no GPU.
int list_candidates(const TuneWords& words) {
  const runtime::Target target = reading_arguments([&] { return target_of(words.arch); });
  std::string text;
  for (const auto& [op, one] : cases_to_tune(words, target)) {
    for (const kernels::jit::TuneAsk& ask : open_choices(*op, one, target)) {
      const auto all = candidates(*ask.space, ask.facts);
      text += fmt::format("{} {}: {} candidates\n", op->name, one.label, all.size());
      const std::vector<std::string> why = words.no_prune
                                               ? std::vector<std::string>(all.size())
                                               : needless_candidates(*op, one, ask, target);
      for (size_t i = 0; i < all.size(); ++i) {
        text += fmt::format("  {}{}{}\n", runtime::to_string(named(*ask.space, all[i])),
                            why[i].empty() ? "" : "  ", why[i]);
      }
    }
  }
  return print(text.empty() ? "nothing to tune: these kernels leave no choice open\n" : text)
             ? kOk
             : kFailed;
}

void check_words(const TuneWords& words) {
  if (!(words.budget > 0)) {
    throw UsageError(Error({.kind = ErrorKind::argument,
                            .what = "argument 'budget' has a wrong value",
                            .argument = "budget",
                            .expected = "seconds above 0",
                            .got = fmt::format("{}", words.budget)}));
  }
  const int num_devices = runtime::num_devices();
  if (num_devices == 0) {
    throw Error({.kind = ErrorKind::unsupported,
                 .what = "tune needs a GPU",
                 .expected = "a CUDA device, or --dry-run",
                 .got = runtime::why_no_device()});
  }
  if (words.device < 0 || words.device >= num_devices) {
    throw UsageError(Error({.kind = ErrorKind::argument,
                            .what = "argument 'device' names no GPU",
                            .argument = "device",
                            .expected = fmt::format("0..{}", num_devices - 1),
                            .got = fmt::format("{}", words.device)}));
  }
}

/// Errors: load, if results could not be stored: found before minutes of measuring, not after.
void check_database(int device) {
  const kernels::jit::GpuModel model = kernels::jit::gpu_model(Device::cuda(device));
  const std::string problem =
      change_tuned(runtime::Runtime::instance().options(), model.name, model.num_sms, [](auto&) {});
  if (problem.empty()) return;
  throw Error({.kind = ErrorKind::load,
               .what = "tune could not store what it finds",
               .got = problem,
               .hint = "--out FILE writes the entries to a file instead"});
}

int tune(const TuneWords& words) {
  if (words.dry_run) return list_candidates(words);
  check_words(words);
  if (words.out.empty()) check_database(words.device);
  const std::unique_ptr<kernels::jit::CallTimer> timer = kernels::jit::gpu_timer(words.device);
  const kernels::jit::TimerScope timed(*timer);
  const std::vector<ChosenCase> cases =
      cases_to_tune(words, runtime::Runtime::instance().target_on(words.device));
  OptionalOutput out(words.out), json(words.json);
  const kernels::jit::TuneOptions options = {.budget_s = words.budget, .store = words.out.empty()};
  std::vector<runtime::TunedEntry> entries;
  std::vector<std::string> differing;
  bool is_stored = true;
  for (const auto& [op, one] : cases) {
    show_progress(fmt::format("{} {}", op->name, one.label));
    const kernels::jit::TuneReport tuned =
        tune_case(*op, one, Device::cuda(words.device), options,
                  words.no_prune ? Prune::none : Prune::needless);
    merge_tuned(entries, tuned.entries);
    for (const std::string& line : tuned.differing) {
      differing.push_back(fmt::format("{} {}, {}", op->name, one.label, line));
    }
    for (const std::string& line : tuned.not_stored) {
      tell(fmt::format("tessera: not stored: {}\n", line));
      is_stored = false;
    }
  }
  show_progress("");
  out.write(encode_tuned(entries));
  json.write(encode_tuned(entries));
  for (const std::string& line : differing) {
    tell(fmt::format("tessera: {}: its results differ from the standard choice's\n", line));
  }
  const bool is_lost = !is_stored && words.json.empty();  // unless it is printed
  if (is_lost) tell("tessera: `tessera tune import` takes the entries that stand on stdout\n");
  const bool is_printed = print(is_lost ? encode_tuned(entries) : tuned_table(entries));
  return is_printed && is_stored && differing.empty() ? kOk : kFailed;
}

/// The stored entries of an op and of GPU models with `gpu` in their name; "" is in all. Names the
/// files that cannot be read.
runtime::TunedFile stored_of(const std::string& op, const std::string& gpu = "") {
  runtime::TunedFile stored = read_all_tuned(runtime::Runtime::instance().options());
  std::erase_if(stored.entries, [&](const runtime::TunedEntry& entry) {
    return (!op.empty() && entry.key.op != op) || entry.key.device.find(gpu) == std::string::npos;
  });
  for (const std::string& problem : stored.problems) {
    tell(fmt::format("tessera: not read: {}\n", problem));
  }
  return stored;
}

/// Prints what was made of stored entries; a failure if some of them could not be read.
int finish(const runtime::TunedFile& stored, const std::string& text) {
  return print(text) && stored.problems.empty() ? kOk : kFailed;
}

int list_stored(const TuneWords& words) {
  const runtime::TunedFile stored = stored_of("");
  return finish(stored, words.as_json ? encode_tuned(stored.entries) : tuned_table(stored.entries));
}

int show_stored(const TuneWords& words) {
  const runtime::TunedFile stored = stored_of(words.op);
  if (stored.entries.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .op = words.op,
                 .what = "nothing is stored for it",
                 .argument = "op",
                 .expected = "an op that `tessera tune ls` lists",
                 .got = words.op});
  }
  if (words.as_json) return finish(stored, encode_tuned(stored.entries));
  std::string text;
  for (const runtime::TunedEntry& entry : stored.entries) {
    text += (text.empty() ? "" : "\n") + tuned_text(entry);
  }
  return finish(stored, text);
}

int diff_files(const TuneWords& words) {
  const auto [before, after] = reading_arguments(
      [&] { return std::pair(tuned_entries_in(words.file), tuned_entries_in(words.other)); });
  return print(tuned_diff(before, after)) ? kOk : kFailed;
}

int prune_stored(const TuneWords& words) {
  const ObsoleteTuned obsolete(program_ops());
  std::string text;
  std::set<std::pair<std::string, int64_t>> models;  // with something to prune
  const runtime::TunedFile stored = stored_of("");
  for (const runtime::TunedEntry& entry : stored.entries) {
    const std::string why = obsolete.why(entry);
    if (why.empty()) continue;
    models.emplace(entry.key.device, entry.key.num_sms);
    text += fmt::format("{} {}, {}: {}\n", entry.key.op, runtime::to_string(entry.key.spec),
                        entry.key.device, why);
  }
  bool is_done = true;
  for (const auto& [device, num_sms] : models) {
    if (words.dry_run) break;
    const std::string problem = change_tuned(
        runtime::Runtime::instance().options(), device, num_sms,
        [&](std::vector<runtime::TunedEntry>& entries) {
          std::erase_if(entries, [&](const auto& entry) { return !obsolete.why(entry).empty(); });
        });
    if (problem.empty()) continue;
    tell(fmt::format("tessera: not pruned: {}\n", problem));
    is_done = false;
  }
  const int result = finish(stored, text.empty() ? "nothing to prune\n" : text);
  return is_done ? result : kFailed;
}

int export_stored(const TuneWords& words) {
  OptionalOutput out(words.file);
  const runtime::TunedFile stored = stored_of(words.op, words.gpu);
  out.write(encode_tuned(stored.entries));
  return finish(stored, fmt::format("{} entries\n", stored.entries.size()));
}

int import_file(const TuneWords& words) {
  const std::vector<runtime::TunedEntry> entries =
      reading_arguments([&] { return tuned_entries_in(words.file); });
  std::map<std::pair<std::string, int64_t>, std::vector<runtime::TunedEntry>> files;
  for (const runtime::TunedEntry& entry : entries) {
    files[{entry.key.device, entry.key.num_sms}].push_back(entry);
  }
  size_t num_stored = 0;
  for (const auto& [model, of_model] : files) {
    const std::string problem =
        change_tuned(runtime::Runtime::instance().options(), model.first, model.second,
                     [&, &more = of_model](auto& stored) { merge_tuned(stored, more); });
    if (problem.empty()) {
      num_stored += of_model.size();
    } else {
      tell(fmt::format("tessera: not stored: {}\n", problem));
    }
  }
  const bool is_printed = print(fmt::format("{} entries\n", num_stored));
  return is_printed && num_stored == entries.size() ? kOk : kFailed;
}

/// `tune OP` without a subcommand.
void add_measuring(CLI::App& tune, TuneWords& words) {
  tune.add_option("op", words.op, "an op, a family or all");
  tune.add_option("-p,--param", words.params, "name=value of the cases, any number of times")
      ->allow_extra_args(false);
  tune.add_option("--case", words.cases, "only the cases with this text in their label");
  tune.add_option("--case-of", words.cases_of,
                  "this case instead, \"R=8064 C=7168 x=bf16\"; may be given again")
      ->allow_extra_args(false);
  tune.add_option("--specs", words.specs,
                  "the listed cases whose kernels TESSERA_RECORD recorded in this file");
  tune.add_option("--device", words.device, "number of the GPU (default 0)");
  tune.add_option("--budget", words.budget, "seconds per choice (default 60)");
  tune.add_flag("--dry-run", words.dry_run, "list the candidates, measure nothing; needs no GPU");
  tune.add_flag("--no-prune", words.no_prune,
                "measure also what does more work on the executor than another candidate");
  tune.add_option("--arch", words.arch, "target of --dry-run (default sm_90a)");
  tune.add_option("--json", words.json, "write the entries to this file too");
  tune.add_option("--out", words.out, "write the entries to this file, not to the user's database");
}

using Words = std::shared_ptr<TuneWords>;

/// `add(name, purpose, action)` adds a subcommand.
template <class Add>
void add_stored(const Words& words, const Add& add) {
  CLI::App* ls = add("ls", "what is stored", list_stored);
  ls->add_flag("--json", words->as_json, "for machines");
  CLI::App* show = add("show", "how the stored sizes of an op were found", show_stored);
  show->add_option("op", words->op, "an op")->required();
  show->add_flag("--json", words->as_json, "for machines");
  CLI::App* diff = add("diff", "what changed from one file of entries to another", diff_files);
  diff->add_option("before", words->file, "a file of --out or export")->required();
  diff->add_option("after", words->other, "another one")->required();
  CLI::App* prune =
      add("prune", "removes stored sizes that no kernel of this build can use", prune_stored);
  prune->add_flag("--dry-run", words->dry_run, "only list them");
  CLI::App* to_file = add("export", "writes what is stored to a file", export_stored);
  to_file->add_option("file", words->file, "the file")->required();
  to_file->add_option("--op", words->op, "only of this op");
  to_file->add_option("--gpu", words->gpu, "only of GPUs with this text in their name");
  CLI::App* from_file = add("import", "adds the entries of a file; newer ones win", import_file);
  from_file->add_option("file", words->file, "a file of --out or export")->required();
}

}  // namespace

void add_tune(CLI::App& app, Command& command) {
  auto words = std::make_shared<TuneWords>();
  CLI::App* sub = app.add_subcommand("tune", "the fastest tile sizes on this GPU");
  sub->footer(
      "Examples:\n"
      "  tessera tune transpose\n"
      "  tessera tune batched_transpose --case bf16 --budget 20\n"
      "  tessera tune --specs specs.jsonl --out tuned.json\n"
      "  tessera tune transpose --dry-run\n"
      "  tessera tune export tuned.json");
  sub->require_subcommand(0, 1);
  add_measuring(*sub, *words);
  using Action = int (*)(const TuneWords&);
  add_stored(words, [&](const char* name, const char* purpose, Action action) {
    CLI::App* made = sub->add_subcommand(name, purpose);
    made->callback(
        [words, action, &command] { command = [words, action] { return action(*words); }; });
    return made;
  });
  sub->callback([words, sub, &command] {
    if (!sub->get_subcommands().empty()) return;
    if (words->op.empty() == words->specs.empty()) {
      throw CLI::RequiredError(words->op.empty() ? "op or --specs" : "one of op and --specs");
    }
    command = [words] { return tune(*words); };
  });
}

}  // namespace tessera::tools
