#include "tools/lib/safetensors.h"

#include <sys/stat.h>

#include <cstring>

#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tools {
namespace {

using tests::read_text;
using tests::TemporaryFolder;
using tests::write_text;

StoredTensor tensor(const std::string& name, DType dtype, Dims shape, int first) {
  StoredTensor t{name, dtype, shape, HostBuffer(num_elements(shape) * bytes(dtype))};
  for (int64_t i = 0; i < t.data.size(); ++i) {
    t.data.data()[i] = static_cast<std::byte>(dtype == DType::boolean ? i % 2 : first + i);
  }
  return t;
}

/// A file with this header and that many zero bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_bytes, '\0');
}

std::string read_message(const std::string& path) {
  try {
    read_safetensors(path);
  } catch (const Error& e) {
    std::string text = e.what();
    const size_t at = text.find(path);
    return at == std::string::npos ? text : text.replace(at, path.size(), "FILE");
  }
  return "no error";
}

TEST_CASE("every dtype survives a round trip, in order, with its metadata", "[safetensors]") {
  const TemporaryFolder folder;
  Safetensors file;
  const DType dtypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3,   DType::e5m2,
                          DType::i8,  DType::u8,  DType::i16,  DType::u16,    DType::i32,
                          DType::u32, DType::i64, DType::u64,  DType::boolean};
  int first = 1;
  for (const DType dtype : dtypes) {
    file.tensors.push_back(tensor("z" + std::string(name(dtype)), dtype, {3, 5}, first++));
  }
  file.tensors.push_back(tensor("empty", DType::f32, {0, 7}, 0));
  file.tensors.push_back(tensor("a scalar \"quoted\" \xC3\xA9", DType::f32, {}, 9));
  file.metadata = {{"strides.x", "1,8064"}, {"note", "two\nlines"}};
  write_safetensors(folder.path("a"), file);

  const Safetensors back = read_safetensors(folder.path("a"));
  CHECK(back.metadata == file.metadata);
  REQUIRE(back.tensors.size() == file.tensors.size());
  for (const StoredTensor& want : file.tensors) {
    CAPTURE(want.name);
    const StoredTensor* got = back.find(want.name);
    REQUIRE(got != nullptr);
    CHECK(got->dtype == want.dtype);
    CHECK(got->shape == want.shape);
    REQUIRE(got->data.size() == want.data.size());
    CHECK(
        std::equal(got->data.bytes().begin(), got->data.bytes().end(), want.data.bytes().begin()));
  }
  CHECK(back.tensors[0].name == "zf32");
  CHECK(back.tensors[13].name == "zbool");
  CHECK(back.find("missing") == nullptr);
}

TEST_CASE("the bytes of a small file are exactly these", "[safetensors]") {
  const TemporaryFolder folder;
  Safetensors file;
  file.tensors.push_back(tensor("x", DType::u8, {2}, 65));
  write_safetensors(folder.path("a"), file);
  const std::string header = "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
  std::string want = file_of(header + std::string((8 - header.size() % 8) % 8, ' '), 0) + "AB";
  CHECK(read_text(folder.path("a")) == want);
}

TEST_CASE("a file without tensors is ordinary", "[safetensors]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("a"), Safetensors());
  CHECK(read_safetensors(folder.path("a")).tensors.empty());
  write_text(folder.path("b"), file_of("{}", 0));
  CHECK(read_safetensors(folder.path("b")).tensors.empty());
}

TEST_CASE("files that are not there or not files are refused", "[safetensors]") {
  const TemporaryFolder folder;
  CHECK(read_message(folder.path("none")) ==
        "tessera: FILE: cannot be opened\n"
        "  expected  a readable file\n"
        "  got       No such file or directory");
  CHECK(read_message(folder.path("")) ==
        "tessera: FILE: cannot be read\n"
        "  expected  a regular file\n"
        "  got       a directory");
  REQUIRE(::mkfifo(folder.path("fifo").c_str(), 0600) == 0);
  CHECK(read_message(folder.path("fifo")) ==
        "tessera: FILE: cannot be read\n"
        "  expected  a regular file\n"
        "  got       a special file");
}

struct Hostile {
  const char* header;
  size_t data_bytes;
  const char* message;
};

TEST_CASE("hostile headers are each explained", "[safetensors]") {
  const Hostile cases[] = {
      {"", 0,
       "is not a safetensors file\n  expected  a header that begins with '{' and ends with '}'\n"
       "  got       an empty header"},
      {"[1]", 0,
       "is not a safetensors file\n  expected  a header that begins with '{' and ends with '}'\n"
       "  got       '[1]'"},
      {"{,}", 0,
       "the header is not JSON\n  expected  a JSON object\n  got       parse error at line "
       "1, column 2: syntax error while parsing object key - unexpected ','; expected string "
       "literal"},
      {R"({"a":[[[[[[[[1]]]]]]]]})", 0,
       "the header is nested too deeply\n  expected  4 levels\n  got       more"},
      {R"({"a":1,"a":2})", 0,
       "the header names 'a' twice\n  expected  each name once\n  got       two"},
      {R"({"a":{"dtype":"U8","dtype":"U8"}})", 0,
       "the header names 'dtype' twice\n  expected  each name once\n  got       two"},
      {R"({"a":1})", 0,
       "tensor 'a' is not an object\n  expected  {dtype, shape, data_offsets}\n  got       number"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1,
       "tensor 'a' has no field 'data_offsets'\n  expected  dtype, shape and data_offsets\n"
       "  got       2 fields"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}})", 1,
       "tensor 'a' has an unknown field\n  expected  dtype, shape and data_offsets\n  got       x"},
      {R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,1]}})", 1,
       "the dtype of tensor 'a' is not a string\n  expected  \"F32\", \"BF16\", ...\n"
       "  got       number"},
      {R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1,
       "tensor 'a' has an unknown dtype\n"
       "  expected  F32 F16 BF16 F8_E4M3 F8_E5M2 I8 U8 I16 U16 I32 U32 I64 U64 BOOL\n"
       "  got       F4"},
      {R"({"a":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", 1,
       "the shape of tensor 'a' is not a list\n  expected  a list of extents\n  got       string"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
       "tensor 'a' has too many dimensions\n  expected  8\n  got       9"},
      {R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1,
       "an extent of tensor 'a' is not a count\n  expected  an integer from 0 to 2^63 - 1\n"
       "  got       1.5"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
       "an extent of tensor 'a' is negative\n  expected  an integer from 0 to 2^63 - 1\n"
       "  got       -1"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1,
       "an extent of tensor 'a' is too large\n  expected  an integer from 0 to 2^63 - 1\n"
       "  got       9223372036854775808"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", 1,
       "tensor 'a' is too large\n  expected  less than 2^63 bytes\n"
       "  got       [4294967296,4294967296]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1,
       "the data_offsets of tensor 'a' are not a pair\n  expected  [begin, end]\n"
       "  got       1 numbers"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":{"b":0}}})", 1,
       "the data_offsets of tensor 'a' are not a pair\n  expected  [begin, end]\n"
       "  got       object"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1,
       "an offset of tensor 'a' is negative\n  expected  an integer from 0 to 2^63 - 1\n"
       "  got       -1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1,
       "tensor 'a' ends before it begins\n  expected  begin <= end\n  got       [1, 0]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2]}})", 2,
       "tensor 'a' has the wrong size\n  expected  4 bytes for F32[1]\n  got       2 bytes"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1,
       "tensor 'a' lies outside the file\n  expected  offsets up to 1\n  got       [0, 2]"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensors 'a' and 'b' overlap\n  expected  begin = 2\n  got       begin = 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "there is a hole before tensor 'b'\n  expected  begin = 1\n  got       begin = 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
       "there is a hole before tensor 'a'\n  expected  begin = 0\n  got       begin = 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
       "there are bytes that belong to no tensor\n  expected  1 bytes of data\n  got       2"},
      {R"({"__metadata__":[]})", 0,
       "__metadata__ is not an object\n  expected  an object of strings\n  got       array"},
      {R"({"__metadata__":{"k":1}})", 0,
       "__metadata__ 'k' is not a string\n  expected  a string\n  got       number"},
  };
  const TemporaryFolder folder;
  for (const Hostile& hostile : cases) {
    CAPTURE(hostile.header);
    write_text(folder.path("a"), file_of(hostile.header, hostile.data_bytes));
    CHECK(read_message(folder.path("a")) == std::string("tessera: FILE: ") + hostile.message);
  }
}

/// "t0": value, "t1": value, ...
std::string object_of(int count, const std::string& value) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) {
    text += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + "\":" + value;
  }
  return text + "}";
}

TEST_CASE("a header of 65536 tensors, the most, is read", "[safetensors]") {
  const TemporaryFolder folder;
  constexpr int kTensors = 65'536;
  write_text(folder.path("many"),
             file_of(object_of(kTensors, R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})"), 0));
  CHECK(read_safetensors(folder.path("many")).tensors.size() == kTensors);
}

TEST_CASE("a million empty tensors or keys of metadata are refused while the header is scanned",
          "[safetensors][slow]") {
  const TemporaryFolder folder;
  constexpr int kMany = 1'000'000;
  const std::string refusal =
      "tessera: FILE: the header holds too many names\n"
      "  expected  at most 65536 tensors and as many keys of __metadata__\n"
      "  got       more";
  write_text(folder.path("tensors"),
             file_of(object_of(kMany, R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})"), 0));
  CHECK(read_message(folder.path("tensors")) == refusal);
  write_text(folder.path("keys"),
             file_of(R"({"__metadata__":)" + object_of(kMany, R"("")") + "}", 0));
  CHECK(read_message(folder.path("keys")) == refusal);
}

TEST_CASE("nothing hides before or behind the header's object", "[safetensors]") {
  const TemporaryFolder folder;
  const std::string good = R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  const auto message = [&](const std::string& header) {
    write_text(folder.path("a"), file_of(header, 0));
    return read_message(folder.path("a"));
  };
  CHECK(message(good) == "no error");
  CHECK(message(good + "   ") == "no error");
  for (const std::string& header :
       {"\xEF\xBB\xBF" + good, " " + good, "\n" + good, good + "\n", good + std::string(1, '\0'),
        good + std::string(1, '\0') + R"({"y":GARBAGE)"}) {
    CAPTURE(header);
    CHECK(message(header).find("tessera: FILE: is not a safetensors file\n") == 0);
  }
  CHECK(message(good + std::string(1, '\0') + R"({"y":1})") ==
        "tessera: FILE: the header holds a NUL\n"
        "  expected  JSON text\n"
        "  got       a NUL at byte 53");
}

TEST_CASE("a text file given as safetensors is called what it is", "[safetensors]") {
  const TemporaryFolder folder;
  write_text(folder.path("README.md"), "# Tessera\n\nTessera is an embedded tile language");
  CHECK(read_message(folder.path("README.md")) ==
        "tessera: FILE: is not a safetensors file\n"
        "  expected  8 bytes that say how long the header is, at most 100000000\n"
        "  got       8243121632430006307");
}

TEST_CASE("a name of nine megabytes is cut in messages", "[safetensors]") {
  const TemporaryFolder folder;
  write_text(folder.path("long"),
             file_of("{\"" + std::string(9'000'000, 'n') + R"(":{"dtype":3}})", 0));
  const std::string message = read_message(folder.path("long"));
  CHECK(message.size() < 3000);
  CHECK(message.find("nnn ... 8998") != std::string::npos);
  CHECK(message.find(" bytes left out ... nnn") != std::string::npos);
  CHECK(message.find("has no field 'shape'") != std::string::npos);
}

TEST_CASE("a name cannot forge a line of a message or turn its text around", "[safetensors]") {
  const TemporaryFolder folder;
  write_text(folder.path("forged"),
             file_of("{\"a\\n  hint      run rm\\u009b31m\\u202e\\u2028\":1}", 0));
  CHECK(read_message(folder.path("forged")) ==
        "tessera: FILE: tensor 'a\\n  hint      run rm\\u009b31m\\u202e\\u2028' is not an object\n"
        "  expected  {dtype, shape, data_offsets}\n"
        "  got       number");
}

TEST_CASE("control characters of a file do not reach the terminal", "[safetensors]") {
  const TemporaryFolder folder;
  write_text(folder.path("esc"), file_of("{\"\\u001b[31m\\u0000z\":1}", 0));
  CHECK(read_message(folder.path("esc")) ==
        "tessera: FILE: tensor '\\x1b[31m\\x00z' is not an object\n"
        "  expected  {dtype, shape, data_offsets}\n"
        "  got       number");
}

TEST_CASE("header lengths beyond the file or the limit are refused", "[safetensors]") {
  const TemporaryFolder folder;
  write_text(folder.path("a"), "1234567");
  CHECK(read_message(folder.path("a")) ==
        "tessera: FILE: the file is truncated\n"
        "  expected  8 bytes of header length\n"
        "  got       7 bytes");
  std::string text = file_of("{}", 0);
  text[0] = 3;
  write_text(folder.path("a"), text);
  CHECK(read_message(folder.path("a")) ==
        "tessera: FILE: the header is longer than the file\n"
        "  expected  at most 2 bytes\n"
        "  got       3 bytes");
  text.replace(0, 8, std::string(8, '\xFF'));
  write_text(folder.path("a"), text);
  CHECK(read_message(folder.path("a")) ==
        "tessera: FILE: is not a safetensors file\n"
        "  expected  8 bytes that say how long the header is, at most 100000000\n"
        "  got       18446744073709551615");
}

TEST_CASE("no prefix of a good file and no flip of a header bit crashes the reader",
          "[safetensors]") {
  const TemporaryFolder folder;
  Safetensors file;
  file.tensors.push_back(tensor("x", DType::bf16, {2, 3}, 1));
  file.tensors.push_back(tensor("mask", DType::boolean, {4}, 0));
  file.metadata["strides.x"] = "1,2";
  write_safetensors(folder.path("a"), file);
  const std::string good = read_text(folder.path("a"));
  for (size_t length = 0; length < good.size(); ++length) {
    write_text(folder.path("b"), good.substr(0, length));
    CHECK(read_message(folder.path("b")) != "no error");
  }
  int refused = 0;
  for (size_t bit = 0; bit < (good.size() - 16) * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    write_text(folder.path("b"), bad);
    refused += read_message(folder.path("b")) == "no error" ? 0 : 1;
  }
  CHECK(refused > 500);
}

TEST_CASE("booleans are 0 or 1", "[safetensors]") {
  const TemporaryFolder folder;
  std::string text = file_of(R"({"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  text.back() = 2;
  write_text(folder.path("a"), text);
  CHECK(read_message(folder.path("a")) ==
        "tessera: FILE: tensor 'm' holds a BOOL that is neither 0 nor 1\n"
        "  expected  0 or 1\n"
        "  got       2");
}

TEST_CASE("a failed write leaves nothing behind", "[safetensors]") {
  const TemporaryFolder folder;
  const auto message = [](const std::string& path) {
    try {
      write_safetensors(path, Safetensors());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const std::string missing = folder.path("no/such/folder");
  CHECK(message(missing) ==
        "tessera: cannot create '" + missing + "'\n  got       No such file or directory");
  CHECK(message("/dev/null") ==
        "tessera: cannot write '/dev/null'\n"
        "  expected  a regular file, or a name that is free\n"
        "  got       a special file");
  CHECK(message(folder.path("")) == "tessera: cannot write '" + folder.path("") +
                                        "'\n  expected  a regular file, or a name that is free\n"
                                        "  got       a directory");
  CHECK(folder.num_files() == 0);
}

TEST_CASE("names that are not UTF-8 are refused, and nothing is written", "[safetensors]") {
  const TemporaryFolder folder;
  const auto message = [&](const Safetensors& file) -> std::string {
    try {
      write_safetensors(folder.path("x"), file);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string refused =
      "tessera: safetensors cannot hold a name or a value that is not UTF-8\n"
      "  expected  UTF-8 text\n"
      "  got       a\\xff";
  Safetensors named, with_key, with_value;
  named.tensors.push_back(tensor("a\xFF", DType::u8, {1}, 0));
  with_key.metadata["a\xFF"] = "1";
  with_value.metadata["strides.x"] = "a\xFF";
  CHECK(message(named) == refused);
  CHECK(message(with_key) == refused);
  CHECK(message(with_value) == refused);
  CHECK(folder.num_files() == 0);
}

TEST_CASE("writing replaces a file and follows a link", "[safetensors]") {
  const TemporaryFolder folder;
  write_text(folder.path("target"), "old");
  std::filesystem::create_symlink(folder.path("target"), folder.path("link"));
  write_safetensors(folder.path("link"), Safetensors());
  CHECK(std::filesystem::is_symlink(folder.path("link")));
  CHECK(read_safetensors(folder.path("target")).tensors.empty());
  CHECK(folder.num_files() == 2);
}

}  // namespace
}  // namespace tessera::tools
