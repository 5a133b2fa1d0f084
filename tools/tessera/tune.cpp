// `tessera tune`: the fastest tile sizes of the ops on this GPU, and those that are stored.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/driver/device.h"
#include "runtime/runtime.h"
#include "tools/lib/bundle_maker.h"
#include "tools/lib/op_choice.h"
#include "tools/lib/own_kernel.h"
#include "tools/lib/tuner.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct TuneWords {
  std::string op, cases, out, arch = "sm_90a";
  std::vector<std::string> cases_of;
  double budget = 60;
  bool dry_run = false, json = false;
};

std::vector<ChosenCase> cases_to_tune(const TuneWords& words) {
  return reading_arguments([&] {
    const std::vector<const kernels::OpInfo*> chosen = choose_ops(program_ops(), words.op);
    return words.cases_of.empty() ? choose_cases(chosen, &kernels::OpInfo::bench, words.cases)
                                  : cases_of(chosen, words.cases_of);
  });
}

/// Says what would be measured; needs no GPU.
int list_candidates(const TuneWords& words) {
  const runtime::Target target = reading_arguments([&] { return target_of(words.arch); });
  std::string text;
  for (const auto& [op, one] : cases_to_tune(words)) {
    for (const kernels::jit::TuneAsk& ask : open_choices(*op, one, target)) {
      const auto all = candidates(*ask.space, ask.facts);
      text += fmt::format("{} {}: {} candidates\n", op->name, one.label, all.size());
      for (const kernels::jit::TuneChoice& choice : all) {
        text += fmt::format("  {}\n", runtime::to_string(named(*ask.space, choice)));
      }
    }
  }
  return print(text.empty() ? "nothing to tune: these kernels leave no choice open\n" : text)
             ? kOk
             : kFailed;
}

int tune(const TuneWords& words) {
  if (words.dry_run) return list_candidates(words);
  if (!(words.budget > 0)) {
    throw UsageError(Error({.kind = ErrorKind::argument,
                            .what = "argument 'budget' has a wrong value",
                            .argument = "budget",
                            .expected = "seconds above 0",
                            .got = fmt::format("{}", words.budget)}));
  }
  const std::vector<ChosenCase> cases = cases_to_tune(words);
  if (runtime::num_devices() == 0) {
    throw Error({.kind = ErrorKind::unsupported,
                 .what = "tune needs a GPU",
                 .expected = "a CUDA device, or --dry-run",
                 .got = runtime::why_no_device()});
  }
  OptionalOutput out(words.out);
  DeviceTimer timer(0);
  const TuneRules rules = {.budget_s = words.budget};
  std::vector<runtime::TunedEntry> entries;
  std::vector<std::string> differing;
  for (const auto& [op, one] : cases) {
    show_progress(fmt::format("{} {}", op->name, one.label));
    const TunedCase tuned = tune_case(*op, one, timer, rules);
    merge_tuned(entries, tuned.entries);
    differing.insert(differing.end(), tuned.differing.begin(), tuned.differing.end());
    if (!words.out.empty()) continue;
    for (const runtime::TunedEntry& entry : tuned.entries) {
      const std::string problem = publish_tuned(runtime::Runtime::instance().options(), entry);
      if (!problem.empty()) tell(fmt::format("tessera: not stored: {}\n", problem));
    }
  }
  show_progress("");
  out.write(encode_tuned(entries));
  for (const std::string& line : differing) {
    tell(fmt::format("tessera: {}: its results differ from the standard choice's\n", line));
  }
  const std::string text = words.json ? encode_tuned(entries) : tuned_table(entries);
  return print(text) && differing.empty() ? kOk : kFailed;
}

std::vector<runtime::TunedEntry> stored_of(const std::string& op) {
  std::vector<runtime::TunedEntry> entries = stored_entries(runtime::Runtime::instance().options());
  if (!op.empty()) {
    std::erase_if(entries, [&](const runtime::TunedEntry& entry) { return entry.key.op != op; });
  }
  return entries;
}

int list_stored(const TuneWords& words) {
  const std::vector<runtime::TunedEntry> entries = stored_of("");
  return print(words.json ? encode_tuned(entries) : tuned_table(entries)) ? kOk : kFailed;
}

int show_stored(const TuneWords& words) {
  const std::vector<runtime::TunedEntry> entries = stored_of(words.op);
  if (entries.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .op = words.op,
                 .what = "nothing is stored for it",
                 .argument = "op",
                 .expected = "an op that `tessera tune ls` lists",
                 .got = words.op});
  }
  if (words.json) return print(encode_tuned(entries)) ? kOk : kFailed;
  std::string text;
  for (const runtime::TunedEntry& entry : entries) {
    text += (text.empty() ? "" : "\n") + tuned_text(entry);
  }
  return print(text) ? kOk : kFailed;
}

}  // namespace

void add_tune(CLI::App& app, Command& command) {
  auto words = std::make_shared<TuneWords>();
  CLI::App* sub = app.add_subcommand("tune", "the fastest tile sizes on this GPU");
  sub->footer(
      "Examples:\n"
      "  tessera tune transpose\n"
      "  tessera tune batched_transpose --case bf16 --budget 20\n"
      "  tessera tune transpose --dry-run\n"
      "  tessera tune ls");
  sub->require_subcommand(0, 1);
  sub->add_option("op", words->op, "an op, a family or all");
  sub->add_option("--case", words->cases, "only the cases with this text in their label");
  sub->add_option("--case-of", words->cases_of,
                  "this case instead, \"R=8064 C=7168 x=bf16\"; may be given again")
      ->allow_extra_args(false);
  sub->add_option("--budget", words->budget, "seconds per choice (default 60)");
  sub->add_flag("--dry-run", words->dry_run, "list the candidates, measure nothing; needs no GPU");
  sub->add_option("--arch", words->arch, "target of --dry-run (default sm_90a)");
  sub->add_flag("--json", words->json, "for machines");
  sub->add_option("--out", words->out,
                  "write the entries to this file, not to the user's database");
  CLI::App* ls = sub->add_subcommand("ls", "what is stored");
  ls->add_flag("--json", words->json, "for machines");
  CLI::App* show = sub->add_subcommand("show", "how the stored sizes of an op were found");
  show->add_option("op", words->op, "an op")->required();
  show->add_flag("--json", words->json, "for machines");
  sub->callback([words, ls, show, &command] {
    if (ls->parsed()) {
      command = [words] { return list_stored(*words); };
    } else if (show->parsed()) {
      command = [words] { return show_stored(*words); };
    } else if (words->op.empty()) {
      throw CLI::RequiredError("op");
    } else {
      command = [words] { return tune(*words); };
    }
  });
}

}  // namespace tessera::tools
