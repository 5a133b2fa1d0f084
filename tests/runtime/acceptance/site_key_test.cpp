// R7.4: where a site has a secret, only what was signed with it is used.

#include "runtime/cache/site_key.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/cache/entry.h"
#include "runtime/cache/sha256.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/sample_image.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

void put(const std::string& path, const std::string& bytes, mode_t mode = 0600) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

Options with_key(const std::string& root, const std::string& key_file) {
  Options options;
  options.cache_roots = {root};
  options.cache_key_file = key_file;
  return options;
}

std::string only_entry(const std::string& root) {
  std::string path;
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    if (item.path().extension() == ".tsk") path = item.path().string();
  }
  return path;
}

std::string problem_of(const std::string& path) {
  std::string problem;
  CHECK(read_site_key(path, problem).empty());
  return problem;
}

}  // namespace

TEST_CASE("HMAC-SHA256 is the standard's") {
  // RFC 4231, test cases 1, 2 and 6.
  CHECK(to_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(to_hex(hmac_sha256(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("an entry is used under the secret that signed it, and under no other") {
  const std::string secret(16, 's');
  const std::string bytes = encode_entry(sample_key(), sample_image(), secret);
  std::string reason;
  CHECK(decode_entry(bytes, sample_key(), reason, secret));
  CHECK_FALSE(decode_entry(bytes, sample_key(), reason, std::string(16, 't')));
  CHECK(reason == "it is not signed by this site");
  CHECK_FALSE(decode_entry(bytes, sample_key(), reason));
  CHECK(reason == "it is signed, and this process has no secret (TESSERA_CACHE_KEY_FILE)");
  CHECK(is_signed(bytes));
  CHECK_FALSE(is_signed(encode_entry(sample_key(), sample_image())));
  CHECK_FALSE(is_signed(bytes.substr(0, 100)));
  // Digests that fit do not help who has not the secret.
  CHECK_FALSE(
      decode_entry(encode_entry(sample_key(), sample_image()), sample_key(), reason, secret));
  CHECK(reason == "it is not signed by this site");
}

TEST_CASE("processes with the site's secret share a cache, a planted entry is compiled anew") {
  FakeCuda fake;
  const ScratchFolder scratch;
  put(scratch / "key", "a secret of this site");
  const Options options = with_key(scratch / "cache", scratch / "key");
  { Process(fake, options).runtime->image(Process::with_text("a"), kTarget); }
  Process second(fake, options);
  const auto image = second.runtime->image(Process::with_text("a"), kTarget);
  CHECK(second.runtime->counters().disk_hits == 1);

  // Someone who can write the folder puts another cubin there, with every digest right.
  const std::string path = only_entry(scratch / "cache");
  Image planted = *image;
  planted.cubin.back() = static_cast<char>(planted.cubin.back() ^ 1);
  put(path, encode_entry(image->key, planted));
  Process third(fake, options);
  CHECK(third.runtime->image(Process::with_text("a"), kTarget)->cubin == image->cubin);
  CHECK(third.runtime->counters().corrupt_entries == 1);
  CHECK(third.lines == std::vector<std::string>{"scale: cache entry " + path +
                                                " cannot be used (it is not signed by this site); "
                                                "compiling again"});
  CHECK(fake.state().num_compiles == 2);
  Process fourth(fake, options);  // and healed
  fourth.runtime->image(Process::with_text("a"), kTarget);
  CHECK(fourth.runtime->counters().disk_hits == 1);
}

TEST_CASE("processes of other sites and without a secret leave signed entries as they are (R7.4)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  put(scratch / "key", "a secret of this site");
  put(scratch / "other", "a secret of another site");
  const Options options = with_key(scratch / "cache", scratch / "key");
  { Process(fake, options).runtime->image(Process::with_text("a"), kTarget); }
  const std::string path = only_entry(scratch / "cache");
  const bool has_secret = GENERATE(false, true);
  const Options others = with_key(scratch / "cache", has_secret ? scratch / "other" : "");
  for (const int hits : {0, 1}) {  // each has an entry of its own
    Process stranger(fake, others);
    CHECK(stranger.runtime->image(Process::with_text("a"), kTarget)->source == "a");
    CHECK(stranger.runtime->counters().disk_hits == hits);
    CHECK(stranger.runtime->counters().corrupt_entries == 0);
    CHECK(stranger.lines.empty());
    CHECK(fs::exists(path));
  }
  Process second(fake, options);
  second.runtime->image(Process::with_text("a"), kTarget);
  CHECK(second.runtime->counters().disk_hits == 1);
  CHECK(second.lines.empty());
}

TEST_CASE("with the site's secret a bundle must be signed") {
  FakeCuda fake;
  const ScratchFolder scratch;
  put(scratch / "key", "a secret of this site");
  const bool is_signed = GENERATE(false, true);
  Options maker_options;
  if (is_signed) maker_options.cache_key_file = scratch / "key";
  Process maker(fake, maker_options);
  put(scratch / "kernels.tsb",
      encode_bundle({maker.runtime->bundle_item(maker.with_spec("a"), kTarget)}));
  Process process(fake, with_key(scratch / "kernels.tsb", scratch / "key"));
  process.runtime->image(process.with_spec("a"), kTarget);
  CHECK(process.runtime->counters().disk_hits == (is_signed ? 1 : 0));
  CHECK(fake.state().num_compiles == (is_signed ? 1 : 2));
}

TEST_CASE("a secret that is none leaves the program with its memory and one reason") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string file = scratch / "key";
  CHECK(problem_of(file) == "cannot be opened: No such file or directory");
  put(file, "short");
  CHECK(problem_of(file) == "does not hold 16 to 4096 bytes");
  put(file, std::string(5000, 'x'));
  CHECK(problem_of(file) == "does not hold 16 to 4096 bytes");
  put(file, "a secret of this site", 0644);
  CHECK(problem_of(file) == "can be read by others (mode 0644)");
  put(file, "a secret of this site", 0660);
  CHECK(problem_of(file).find("writable by group or others") != std::string::npos);
  REQUIRE(symlink(file.c_str(), (scratch / "link").c_str()) == 0);
  CHECK(problem_of(scratch / "link") == "is a symbolic link");
  put(file, "a secret of this site", 0640);
  std::string problem;
  CHECK(read_site_key(file, problem) == "a secret of this site");

  put(file, "short");
  Options options = with_key(scratch / "cache", file);
  options.log = LogLevel::error;  // says why before a test can listen
  Process process(fake, options);
  process.runtime->image(Process::with_text("a"), kTarget);
  CHECK_FALSE(fs::exists(scratch / "cache"));
}
