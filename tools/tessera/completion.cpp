// tessera completion: a script that lets a shell complete the program's words.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "kernels/op.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

/// A command with the words that may follow it.
struct Words {
  std::string path;  // " cache ls"; empty for the program
  std::string purpose;
  std::vector<std::pair<std::string, std::string>> options;  // name and meaning
  std::vector<std::pair<std::string, std::string>> commands;
  bool takes_ops = false;
};

/// An option whose values are known words.
using Values = std::map<std::string, std::vector<std::string>>;

/// The words of a check "{ir,layout}" in the name of an option's type.
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  std::vector<std::string> values;
  if (begin == std::string::npos || end == std::string::npos) return values;
  std::string word;
  for (const char c : type.substr(begin + 1, end - begin - 1) + ",") {
    if (c != ',') {
      word += c;
    } else {
      values.push_back(std::exchange(word, ""));
    }
  }
  return values;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Words>& all,
             Values& values) {
  Words words{path, app.get_description(), {}, {}, false};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      words.takes_ops |= option->get_name() == "op";
      for (const std::string& value : values_of(*option)) words.commands.emplace_back(value, "");
    }
    for (const std::string& name : option->get_lnames()) {
      words.options.emplace_back("--" + name, option->get_description());
      if (const auto known = values_of(*option); !known.empty()) values["--" + name] = known;
      if (name == "device") values["--device"] = {"auto", "cpu", "cuda:0"};
    }
    for (const std::string& name : option->get_snames()) {
      words.options.emplace_back("-" + name, option->get_description());
    }
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    words.commands.emplace_back(command->get_name(), command->get_description());
  }
  if (path.empty()) words.commands.emplace_back("help", "the options of a command");
  all.push_back(words);
  for (const CLI::App* command : app.get_subcommands({})) {
    collect(*command, path + " " + command->get_name(), all, values);
  }
}

std::vector<std::string> op_words() {
  std::vector<std::string> words = {"all"};
  std::set<std::string> families;
  for (const kernels::OpInfo& op : program_ops()) {
    words.push_back(op.name);
    families.insert(op.family);
  }
  words.insert(words.end(), families.begin(), families.end());
  return words;
}

std::string paths_pattern(const std::vector<Words>& all) {
  std::vector<std::string> paths;
  for (const Words& words : all) {
    if (!words.path.empty()) paths.push_back(fmt::format("\"{}\"", words.path));
  }
  return fmt::format("{}", fmt::join(paths, "|"));
}

std::vector<std::string> names_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<std::string> names;
  for (const auto& [name, meaning] : pairs) names.push_back(name);
  return names;
}

std::string bash_script(const std::string& name, const std::vector<Words>& all,
                        const Values& values) {
  std::string text = fmt::format(
      "# eval \"$({0} completion bash)\"\n"
      "_{0}() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} path= "
      "words= i\n"
      "  local ops='{1}'\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$path ${{COMP_WORDS[i]}}\" in {2}) path+=\" ${{COMP_WORDS[i]}}\" ;; esac\n"
      "  done\n"
      "  case $before in\n",
      name, fmt::join(op_words(), " "), paths_pattern(all));
  for (const auto& [option, words] : values) {
    text += fmt::format(
        "    {}) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$current\"); return ;;\n", option,
        fmt::join(words, " "));
  }
  text += "  esac\n  case $path in\n";
  for (const Words& words : all) {
    text += fmt::format(
        "    \"{}\") words='{} {}'{} ;;\n", words.path, fmt::join(names_of(words.commands), " "),
        fmt::join(names_of(words.options), " "), words.takes_ops ? "\" $ops\"" : "");
  }
  return text + fmt::format(
                    "  esac\n"
                    "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                    "}}\n"
                    "complete -o default -F _{0} {0}\n",
                    name);
}

/// In single quotes; for _describe a ':' ends a name.
std::string described(const std::pair<std::string, std::string>& pair) {
  std::string meaning;
  for (const char c : pair.second) meaning += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return fmt::format("'{}:{}'", pair.first, meaning);
}

std::string zsh_script(const std::string& name, const std::vector<Words>& all,
                       const Values& values) {
  std::string text = fmt::format(
      "#compdef {0}\n"
      "# {0} completion zsh > a file _{0} in a folder of $fpath\n"
      "_{0}() {{\n"
      "  local path_words= word i\n"
      "  local -a commands options ops\n"
      "  ops=({1})\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$path_words $words[i]\" in {2}) path_words+=\" $words[i]\" ;; esac\n"
      "  done\n"
      "  case $words[CURRENT-1] in\n",
      name, fmt::join(op_words(), " "), paths_pattern(all));
  for (const auto& [option, known] : values) {
    text += fmt::format("    {}) compadd {}; return ;;\n", option, fmt::join(known, " "));
  }
  text += "  esac\n  case $path_words in\n";
  for (const Words& words : all) {
    std::vector<std::string> commands, options;
    for (const auto& one : words.commands) commands.push_back(described(one));
    for (const auto& one : words.options) options.push_back(described(one));
    text += fmt::format("    \"{}\")\n      commands=({})\n      options=({})\n", words.path,
                        fmt::join(commands, " "), fmt::join(options, " "));
    if (words.takes_ops) text += "      compadd -- $ops\n";
    text += "      ;;\n";
  }
  return text + fmt::format(
                    "  esac\n"
                    "  (($#commands)) && _describe command commands\n"
                    "  [[ $PREFIX == -* ]] && _describe option options\n"
                    "  [[ -n $path_words ]] && _files\n"
                    "}}\n"
                    "if [[ $funcstack[1] == _{0} ]]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n",
                    name);
}

std::string fish_quoted(const std::string& text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("\\'") : std::string(1, c);
  return "'" + quoted + "'";
}

std::string fish_script(const std::string& name, const std::vector<Words>& all,
                        const Values& values) {
  std::string text = fmt::format("# {0} completion fish | source\n", name);
  for (const Words& words : all) {
    // " cache ls" becomes: cache was said, and ls.
    std::string condition = words.path.empty() ? "__fish_use_subcommand" : "";
    for (size_t at = 0; at < words.path.size();) {
      const size_t end = std::min(words.path.find(' ', at + 1), words.path.size());
      condition +=
          fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ",
                      words.path.substr(at + 1, end - at - 1));
      at = end;
    }
    for (const auto& [word, purpose] : words.commands) {
      text += fmt::format("complete -c {} -n '{}' -a {} -d {}\n", name, condition, word,
                          fish_quoted(purpose));
    }
    if (words.takes_ops) {
      text += fmt::format("complete -c {} -n '{}' -a '{}'\n", name, condition,
                          fmt::join(op_words(), " "));
    }
    for (const auto& [option, meaning] : words.options) {
      const bool is_long = option.starts_with("--");
      const auto known = values.find(option);
      text += fmt::format(
          "complete -c {} -n '{}' {} {}{} -d {}\n", name, condition, is_long ? "-l" : "-s",
          option.substr(is_long ? 2 : 1),
          known == values.end() ? "" : fmt::format(" -x -a '{}'", fmt::join(known->second, " ")),
          fish_quoted(meaning));
    }
  }
  return text;
}

int completion(const CLI::App& app, const std::string& shell) {
  std::vector<Words> all;
  Values values;
  collect(app, "", all, values);
  const std::string name = app.get_name();
  return print(shell == "bash"  ? bash_script(name, all, values)
               : shell == "zsh" ? zsh_script(name, all, values)
                                : fish_script(name, all, values))
             ? kOk
             : kFailed;
}

}  // namespace

void add_completion(CLI::App& app, Command& command) {
  auto shell = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand("completion", "a script that completes words in a shell");
  sub->footer(
      "Examples:\n"
      "  eval \"$(tessera completion bash)\"\n"
      "  tessera completion zsh > ~/.zfunc/_tessera\n"
      "  tessera completion fish | source");
  sub->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  sub->callback(
      [shell, &app, &command] { command = [shell, &app] { return completion(app, *shell); }; });
}

}  // namespace tessera::tools
