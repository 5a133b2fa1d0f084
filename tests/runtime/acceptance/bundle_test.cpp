// The runtime's acceptance list, 10 and 11: kernels of a bundle without a compiler, and manifests
// made of anything. On a fake compiler.

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "runtime/cache/manifest.h"
#include "runtime/cache/tuned.h"
#include "runtime/record.h"
#include "runtime/surroundings.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/long_tests.h"
#include "tests/runtime/sample_image.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;

namespace {

std::string bundle_of(const FakeCuda& fake, const std::vector<std::string>& specs) {
  Process maker(fake, "");
  std::vector<BundleItem> items;
  for (const std::string& spec : specs) {
    items.push_back(maker.runtime->bundle_item(maker.with_spec(spec), kTarget));
  }
  return encode_bundle(std::move(items));
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  REQUIRE(chmod(path.c_str(), 0600) == 0);
}

bool opened_nvrtc(FakeCuda& fake) {
  for (const std::string& path : fake.state().opened) {
    if (path.find("nvrtc") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("with a bundle and TESSERA_JIT=off no compiler is opened (R22.10)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  put(scratch / "kernels.tsb", bundle_of(fake, {"a", "b"}));
  fake.state().opened.clear();
  fake.state().nvrtc_files.clear();  // a machine without one
  const int compiles = fake.state().num_compiles;
  Options options;
  options.cache_roots = {scratch / "own", scratch / "kernels.tsb"};
  options.jit = JitMode::off;
  Process process(fake, options);
  CHECK(process.runtime->load(process.with_spec("a"), 0)->image->source == "text of a");
  CHECK(process.runtime->load(process.with_spec("b"), 0)->image->source == "text of b");
  CHECK(process.num_emits == 0);
  CHECK(fake.state().num_compiles == compiles);
  CHECK_FALSE(opened_nvrtc(fake));
  CHECK(process.lines.empty());
  CHECK(process.runtime->counters().root_hits[1] == 2);
  CHECK(error_of([&] { process.runtime->nvrtc(); }) ==
        "tessera: compiling is switched off\n"
        "  expected  TESSERA_JIT=on, warn or error\n"
        "  got       off");

  // The documented message of a missing key.
  const std::string text = error_of([&] { process.runtime->load(process.with_spec("c"), 0); });
  const std::string key = text.substr(text.find("key ") + 4, 64);
  CHECK(key.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(
      text ==
      "tessera: scale: the kernel is in no bundle, and compiling is switched off "
      "(TESSERA_JIT=off)\n"
      "  expected  a bundle with sm_90a, Spec 63, key " +
          key +
          "\n"
          "  got       not in " +
          scratch / "own" + ", " + scratch / "kernels.tsb" +
          "\n"
          "  hint      tessera compile scale --arch sm_90a --out kernels.tsb makes a bundle of its "
          "usual forms, --specs FILE one of what TESSERA_RECORD=FILE recorded; name it in "
          "TESSERA_CACHE_DIR");
  CHECK_FALSE(opened_nvrtc(fake));
}

TEST_CASE("a bundle that is missing is said once, and no folder takes its place") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string path = scratch / "nosuch.tsb";
  Options options;
  options.cache_roots = {path};
  Process process(fake, options);
  CHECK(process.runtime->image(process.with_spec("a"), kTarget)->source == "text of a");
  CHECK(process.runtime->image(process.with_spec("b"), kTarget)->source == "text of b");
  CHECK(process.lines ==
        std::vector<std::string>{"bundle " + path +
                                 " is not used: it cannot be opened: No such file or directory; "
                                 "name another with TESSERA_CACHE_DIR"});
  CHECK(publish_tuned(options, {}) ==
        "the folder of tile sizes is not set: there is no cache folder, but the bundle " + path +
            "; set TESSERA_TUNE_DIR");
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a bundle serves a machine without a compiler, what it lacks needs one (R9.2)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  put(scratch / "kernels.tsb", bundle_of(fake, {"a"}));
  Process maker(fake, "");
  put(scratch / "plain.tsb",
      encode_bundle({maker.runtime->bundle_item(maker.with_spec("b"), {9, 0, 0})}));
  fake.state().nvrtc_files.clear();
  Options options;
  options.cache_roots = {scratch / "own", scratch / "kernels.tsb", scratch / "plain.tsb"};
  Process process(fake, options);
  CHECK(process.runtime->load(process.with_spec("a"), 0)->image->source == "text of a");
  CHECK(to_string(process.runtime->load(process.with_spec("b"), 0)->image->target) == "sm_90");
  CHECK(process.runtime->image(process.with_spec("a"), kTarget)->source == "text of a");
  CHECK(process.lines.empty());
  CHECK(error_of([&] {
          process.runtime->load(process.with_spec("c"), 0);
        }).find("tessera: cannot compile CUDA: no usable libnvrtc\n") == 0);
}

TEST_CASE("the real libnvrtc is not mapped with TESSERA_JIT=off (R22.10)") {
  if (dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NOLOAD) ||
      dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_NOLOAD)) {
    TESSERA_SKIP("another test of this process has opened libnvrtc");
  }
  FakeCuda fake;
  const ScratchFolder scratch;
  put(scratch / "kernels.tsb", bundle_of(fake, {"a"}));
  Options options;
  options.cache_roots = {scratch / "kernels.tsb"};
  options.jit = JitMode::off;
  Surroundings surroundings;
  surroundings.code_identity = "code 1";
  Runtime runtime(options, surroundings);
  CHECK(runtime.image({"scale", "a", [] { return source_of("not needed"); }}, kTarget)->source ==
        "text of a");
  CHECK(dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NOLOAD) == nullptr);
  CHECK(dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_NOLOAD) == nullptr);
}

TEST_CASE("a bundle is searched in its turn, also for a device of a lower target") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process maker(fake, "");
  std::vector<BundleItem> items = {maker.runtime->bundle_item(maker.with_spec("a"), {8, 0, 0}),
                                   maker.runtime->bundle_item(maker.with_spec("a"), {8, 6, 0})};
  put(scratch / "kernels.tsb", encode_bundle(items));
  std::reverse(items.begin(), items.end());
  CHECK(encode_bundle(items) == encode_bundle({items[1], items[0]}));
  fake.state().major = 8;
  fake.state().minor = 9;
  Options options;
  options.cache_roots = {scratch / "kernels.tsb"};
  options.jit = JitMode::off;
  Process process(fake, options);
  CHECK(to_string(process.runtime->load(process.with_spec("a"), 0)->image->target) == "sm_86");
}

TEST_CASE("a bundle made from a bundle is the same, whatever compiler is there now, if any") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string bytes = bundle_of(fake, {"a", "b"});
  put(scratch / "kernels.tsb", bytes);
  Options options;
  options.cache_roots = {scratch / "kernels.tsb"};
  options.jit = GENERATE(JitMode::off, JitMode::on);
  fake.state().nvrtc_identity = "build-id of another";
  Process process(fake, options);
  std::vector<BundleItem> items;
  for (const char* spec : {"a", "b"}) {
    items.push_back(process.runtime->bundle_item(process.with_spec(spec), kTarget));
  }
  CHECK(encode_bundle(items) == bytes);
}

TEST_CASE("a damaged bundle is said once and passed over") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string path = scratch / "kernels.tsb";
  const std::string good = bundle_of(fake, {"a"});
  std::string bytes = good;
  std::string said;
  SECTION("its index") {
    bytes[60] = static_cast<char>(bytes[60] ^ 1);
    said = "bundle " + path + " is not used: it is damaged (index)";
  }
  SECTION("its length") {
    bytes.resize(bytes.size() - 1);
    said = "scale: cache entry " + path + ":";
  }
  SECTION("a kernel") {
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    said = "scale: cache entry " + path + ":";
  }
  SECTION("its head") {
    bytes.resize(20);
    said = "bundle " + path + " is not used: it is not a bundle";
  }
  put(path, bytes);
  Process process(fake, path);
  CHECK(process.runtime->image(process.with_spec("a"), kTarget)->source == "text of a");
  CHECK(process.runtime->counters().compiles == 1);
  REQUIRE(process.lines.size() == 1);
  CHECK(process.lines[0].substr(0, said.size()) == said);
}

TEST_CASE("what a program needed is recorded and makes its bundle") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "cache"};
  options.record = scratch / "specs.jsonl";
  {
    Process process(fake, options);
    const std::string spec("\x01\x00\xff", 3);
    process.runtime->image({"scale", spec, [] { return source_of("text of three bytes"); }},
                           kTarget);
    KernelSource source = source_of("own text");
    source.options = {"-DX"};
    source.cluster = 4;
    process.runtime->image({"scale", {}, [&] { return source; }}, kTarget);
  }
  { Process(fake, options).runtime->image(Process::with_text("third"), kTarget); }
  std::ifstream file(options.record);
  std::vector<BundleItem> items;
  Process maker(fake, "", "another program");
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    const KernelRequest request = parse_record(line, "specs.jsonl:" + std::to_string(++number));
    items.push_back(maker.runtime->bundle_item(request, kTarget));
  }
  CHECK(number == 3);
  put(scratch / "kernels.tsb", encode_bundle(items));
  Options off;
  off.cache_roots = {scratch / "kernels.tsb"};
  off.jit = JitMode::off;
  Process process(fake, off);
  process.runtime->load(process.with_spec(std::string("\x01\x00\xff", 3)), 0);
  KernelSource source = source_of("own text");
  source.options = {"-DX"};
  source.cluster = 4;
  CHECK(process.runtime->load({"scale", {}, [&] { return source; }}, 0)->image->cluster == 4);
  process.runtime->load(Process::with_text("third"), 0);
  CHECK(process.runtime->counters().disk_hits == 3);
}

TEST_CASE("a recorded line with a value that no kernel can have is refused with its place") {
  const ScratchFolder scratch;
  Image image = sample_image();
  image.source = "void scale_kernel();";
  REQUIRE(append_record(scratch / "specs", {std::string("\x01\xff", 2), "code", image}).empty());
  std::ifstream file(scratch / "specs");
  std::string good;
  std::getline(file, good);
  CHECK_NOTHROW(parse_record(good, "specs:1"));
  const auto said = [&](const std::string& line) {
    return error_of([&] { parse_record(line, "specs:4"); });
  };
  const auto with = [&](const std::string& member, const std::string& value) {
    const std::regex old("\"" + member + "\":(\\[[^\\]]*\\]|\"[^\"]*\"|[^,}]*)");
    const std::string line = std::regex_replace(good, old, "\"" + member + "\":" + value);
    REQUIRE(line != good);
    return said(line);
  };
  const std::string what = "tessera: specs:4 is not a recorded kernel\n";
  CHECK(said("{\"op\": 3}") == what + "  expected  a text 'op'\n  got       3");
  CHECK(said("no JSON") ==
        what + "  expected  a line written by TESSERA_RECORD\n  got       no JSON, or too deep");
  CHECK(said("[1]") == what + "  expected  an object\n  got       [1]");
  for (const char* value : {"-1", "0", "1025", "1000000000"}) {
    CHECK(with("threads", value) ==
          what + "  expected  threads from 1 to 1024\n  got       " + value);
  }
  CHECK(with("threads", "1.5").find("a whole number 'threads'") != std::string::npos);
  CHECK(with("shared_bytes", "-1") ==
        what + "  expected  shared_bytes from 0 to 16777216\n  got       -1");
  CHECK(with("shared_bytes", "9223372036854775808").find("a whole number 'shared_bytes'") !=
        std::string::npos);
  CHECK(with("cluster", "-5") == what + "  expected  cluster from 1 to 16\n  got       -5");
  CHECK(with("text", "\"\"") ==
        what + "  expected  CUDA text of 1 to 16777216 bytes\n  got       0 bytes");
  CHECK(with("text", "\"#include <x>\"") ==
        what + "  expected  a self-contained text\n  got       line 1: #include <x>");
  CHECK(with("entry", "\"a b\"").find("got       a b") != std::string::npos);
  CHECK(with("spec", "[1,256]") ==
        what + "  expected  bytes from 0 to 255 in 'spec'\n  got       256");
  CHECK(with("spec", "[-1]").find("got       -1") != std::string::npos);
  CHECK(with("dtype", "\"f12\"").find("params[0] with the name of a dtype") != std::string::npos);
  CHECK(with("options", "[\"-I/usr\"]").find("got       -I/usr") != std::string::npos);
  std::string params;
  for (int i = 0; i < 5000; ++i) {
    params += std::string(i == 0 ? "[" : ",") + R"({"dtype":"f32","name":"x","pointer":true})";
  }
  auto json = nlohmann::json::parse(good);
  json["params"] = nlohmann::json::parse(params + "]");
  CHECK(said(json.dump()) == what + "  expected  params from 0 to 4096\n  got       5000");
}

TEST_CASE("the text of a recording never stands for an op's in the cache") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "cache"};
  const bool is_signed = GENERATE(false, true);
  if (is_signed) {
    put(scratch / "key", "a secret of this site");
    REQUIRE(chmod((scratch / "key").c_str(), 0600) == 0);
    options.cache_key_file = scratch / "key";
  }
  KernelRequest evil{"scale", "a", [] { return source_of("evil text"); }};
  evil.code = "code 1";  // of the honest program
  BundleItem item;
  {
    Process victim(fake, options);
    item = victim.runtime->bundle_item(evil, kTarget);
    CHECK(item.bytes.find("evil text") != std::string::npos);
    CHECK(victim.runtime->image(victim.with_spec("a"), kTarget)->source == "text of a");
    CHECK(victim.runtime->bundle_item(victim.with_spec("a"), kTarget).bytes.find("evil") ==
          std::string::npos);
  }
  Process honest(fake, options);
  CHECK(honest.runtime->image(honest.with_spec("a"), kTarget)->source == "text of a");
  // Under its own text it is kept: a second bundle costs no compile.
  const int before = fake.state().num_compiles;
  Process again(fake, options);
  CHECK(again.runtime->bundle_item(evil, kTarget).bytes == item.bytes);
  CHECK(fake.state().num_compiles == before);
}

TEST_CASE("a text that JSON cannot hold is not recorded") {
  const ScratchFolder scratch;
  Image image = sample_image();
  image.source = "// \xff\n";
  CHECK(append_record(scratch / "specs", {"spec", "code", image}) == "the CUDA text is not UTF-8");
  CHECK_FALSE(std::filesystem::exists(scratch / "specs"));
}

TEST_CASE("a line that a disk has no room for leaves the recording as it was") {
  const ScratchFolder scratch;
  const std::string path = scratch / "specs.jsonl";
  const Image image = sample_image();
  const RecordedKernel kernel{"spec", "code", image};
  CHECK(append_record(path, kernel).empty());
  const auto size = static_cast<rlim_t>(std::filesystem::file_size(path));
  struct rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const struct rlimit full = {size + 20, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &full) == 0);
  const std::string problem = append_record(path, kernel);
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(problem == "no room for the line");
  CHECK(std::filesystem::file_size(path) == size);
}

TEST_CASE("a torn line of a recording spoils no other") {
  const ScratchFolder scratch;
  const std::string path = scratch / "specs.jsonl";
  const Image image = sample_image();
  const RecordedKernel kernel{"spec", "code", image};
  std::ofstream(path) << "{\"op\": \"sca";
  CHECK(append_record(path, kernel).empty());
  CHECK(append_record(path, kernel).empty());
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "{\"op\": \"sca");
  CHECK_NOTHROW(parse_record(lines[1], "specs.jsonl:2"));
  CHECK(lines[2] == lines[1]);
}

TEST_CASE("after seal a compile is reported or refused, as the switch says") {
  FakeCuda fake;
  Options options;
  SECTION("warn") {
    options.jit = JitMode::warn;
  }
  SECTION("error") {
    options.jit = JitMode::error;
  }
  SECTION("on") {
    options.jit = JitMode::on;
  }
  Process process(fake, options);
  process.runtime->image(process.with_spec("a"), kTarget);
  CHECK(process.lines.empty());
  process.runtime->seal();
  process.runtime->image(process.with_spec("a"), kTarget);
  CHECK(process.lines.empty());
  const std::string text =
      error_of([&] { process.runtime->image(process.with_spec("b"), kTarget); });
  if (options.jit == JitMode::error) {
    CHECK(text.find("tessera: scale: the kernel would have to be compiled after the program was "
                    "sealed (TESSERA_JIT=error)\n"
                    "  expected  a cache with sm_90a, Spec 62, key ") == 0);
    CHECK(process.lines.empty());
  } else {
    CHECK(text == "no error");
    REQUIRE(process.lines.size() == (options.jit == JitMode::warn ? 1 : 0));
  }
  if (options.jit == JitMode::warn) {
    CHECK(process.lines[0].find("scale: compiled after the program was sealed: sm_90a, Spec 62") ==
          0);
  }
}

TEST_CASE("a manifest made of anything is read in bounded time or refused (R22.11)") {
  const std::string good = encode_manifest(sample_key(), sample_image());
  std::mt19937 random(11);
  const std::vector<std::string> pieces = {"{",      "}",       "[",   "]",      "\"",     ":",
                                           ",",      "null",    "1e9", "-1",     "\\u",    "\xff",
                                           "\"op\"", "1e99999", "0",   "[[[[[[", "{\"a\":"};
  const auto number = [&](size_t below) { return random() % below; };
  const auto limit = std::chrono::seconds(rounds(3, 600));
  const auto start = std::chrono::steady_clock::now();
  int64_t tried = 0;
  int64_t accepted = 0;
  struct rusage usage_before = {};
  getrusage(RUSAGE_SELF, &usage_before);
  while (std::chrono::steady_clock::now() - start < limit) {
    std::string text = good;
    for (size_t change = 1 + number(4); change > 0; --change) {
      const size_t at = number(text.size() + 1);
      switch (number(5)) {
        case 0:
          text.insert(at, pieces[number(pieces.size())]);
          break;
        case 1:
          text.erase(at, number(40));
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(random());
          break;
        case 3:
          text.insert(at, text.substr(number(text.size() + 1), number(200)));
          break;
        default:
          text.insert(at, std::string(number(3000), "[{\"0 "[number(5)]));
      }
    }
    const std::clock_t one = std::clock();
    const auto manifest = decode_manifest(text);
    REQUIRE(std::clock() - one < CLOCKS_PER_SEC);  // of this process, however busy the machine is
    ++tried;
    if (!manifest) continue;
    ++accepted;
    REQUIRE(manifest->image.threads >= 1);
    REQUIRE(manifest->image.threads <= 1024);
    REQUIRE(is_identifier(manifest->image.entry));
  }
  CHECK(tried > 100);
  CHECK(accepted < tried);
  // However large: what cannot be a manifest is not read.
  CHECK_FALSE(decode_manifest(std::string(1 << 20, '[')).has_value());
  [[maybe_unused]] const std::clock_t one = std::clock();
  for (const std::string_view start_of : {"[", "{\"a\":", "\"", "0,"}) {
    std::string text(start_of);
    while (text.size() < size_t{64} << 20) text += text;
    CHECK_FALSE(decode_manifest(text).has_value());
  }
// Sanitizers keep what was freed, and are slow.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(std::clock() - one < 2 * CLOCKS_PER_SEC);
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  CHECK(usage.ru_maxrss - usage_before.ru_maxrss <
        512 * 1024);  // KB, the texts themselves included
#endif
  if (long_tests()) WARN(tried << " manifests tried, " << accepted << " accepted");
}
