#include "tools/lib/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "dsl/base/error.h"
#include "dsl/base/printable.h"
#include "tools/lib/files/input_file.h"
#include "tools/lib/files/json_scan.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little endian");

constexpr int64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr size_t kMaxNames = 65'536;         // tensors, and keys of the metadata
constexpr size_t kShownBytes = 16;           // of what is no header
constexpr int kMaxDepth = 4;                 // header, tensor, shape: hostile nesting stops here

constexpr std::array kWords = {
    std::pair{DType::f32, std::string_view("F32")},
    std::pair{DType::f16, std::string_view("F16")},
    std::pair{DType::bf16, std::string_view("BF16")},
    std::pair{DType::e4m3, std::string_view("F8_E4M3")},
    std::pair{DType::e5m2, std::string_view("F8_E5M2")},
    std::pair{DType::i8, std::string_view("I8")},
    std::pair{DType::u8, std::string_view("U8")},
    std::pair{DType::i16, std::string_view("I16")},
    std::pair{DType::u16, std::string_view("U16")},
    std::pair{DType::i32, std::string_view("I32")},
    std::pair{DType::u32, std::string_view("U32")},
    std::pair{DType::i64, std::string_view("I64")},
    std::pair{DType::u64, std::string_view("U64")},
    std::pair{DType::boolean, std::string_view("BOOL")},
    std::pair{DType::f64, std::string_view("F64")},
};

[[noreturn]] void fail(const std::string& path, std::string what, std::string expected,
                       std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("{}: {}", path, what),
               .argument = path,
               .expected = std::move(expected),
               .got = std::move(got)});
}

Json parse_header(const std::string& path, const std::string& text) {
  // Blanks at the end only, and nothing that one parser reads and another does not.
  const size_t end = text.find_last_not_of(' ');
  if (end == std::string::npos || text.front() != '{' || text[end] != '}') {
    fail(path, "is not a safetensors file", "a header that begins with '{' and ends with '}'",
         text.empty() ? "an empty header" : fmt::format("'{}'", text.substr(0, kShownBytes)));
  }
  if (text.find('\0') != std::string::npos) {
    fail(path, "the header holds a NUL", "JSON text",
         fmt::format("a NUL at byte {}", text.find('\0')));
  }
  const JsonScan scan = scan_json(text, kMaxDepth, kMaxNames);
  if (scan.too_many) {
    fail(path, "the header holds too many names",
         fmt::format("at most {} tensors and as many keys of __metadata__", kMaxNames), "more");
  }
  if (scan.too_deep) {
    fail(path, "the header is nested too deeply", fmt::format("{} levels", kMaxDepth), "more");
  }
  if (scan.repeats) {
    fail(path, fmt::format("the header names '{}' twice", scan.repeated_name), "each name once",
         "two");
  }
  Json header;
  try {
    header = Json::parse(text);
  } catch (const Json::exception& e) {
    fail(path, "the header is not JSON", "a JSON object", json_problem(e));
  }
  return header;
}

/// Throws Error (argument) unless the text is UTF-8, as JSON requires.
void check_utf8(const std::string& text) {
  if (is_utf8(text)) return;
  throw Error({.kind = ErrorKind::argument,
               .what = "safetensors cannot hold a name or a value that is not UTF-8",
               .expected = "UTF-8 text",
               .got = text});
}

/// A tensor of the header, before its data are read.
struct Entry {
  StoredTensor tensor;
  int64_t begin = 0, end = 0;
};

int64_t count(const std::string& path, const std::string& what, const Json& value) {
  if (!value.is_number_integer()) {
    fail(path, fmt::format("{} is not a count", what), "an integer from 0 to 2^63 - 1",
         value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 64));
  }
  if (!value.is_number_unsigned()) {
    fail(path, fmt::format("{} is negative", what), "an integer from 0 to 2^63 - 1", value.dump());
  }
  if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    fail(path, fmt::format("{} is too large", what), "an integer from 0 to 2^63 - 1", value.dump());
  }
  return value.get<int64_t>();
}

Entry parse_tensor(const std::string& path, const std::string& name, const Json& json) {
  const std::string tensor = fmt::format("tensor '{}'", name);
  if (!json.is_object()) {
    fail(path, tensor + " is not an object", "{dtype, shape, data_offsets}", json.type_name());
  }
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!json.contains(field)) {
      fail(path, fmt::format("{} has no field '{}'", tensor, field),
           "dtype, shape and data_offsets", fmt::format("{} fields", json.size()));
    }
  }
  for (const auto& [field, value] : json.items()) {
    if (field == "dtype" || field == "shape" || field == "data_offsets") continue;
    fail(path, fmt::format("{} has an unknown field", tensor), "dtype, shape and data_offsets",
         field);
  }
  Entry entry;
  entry.tensor.name = name;

  const Json& dtype = json["dtype"];
  if (!dtype.is_string()) {
    fail(path, fmt::format("the dtype of {} is not a string", tensor), "\"F32\", \"BF16\", ...",
         dtype.type_name());
  }
  const auto word = std::find_if(kWords.begin(), kWords.end(), [&](const auto& known) {
    return known.second == dtype.get_ref<const std::string&>();
  });
  if (word == kWords.end()) {
    fail(path, fmt::format("{} has an unknown dtype", tensor),
         "F32 F16 BF16 F8_E4M3 F8_E5M2 I8 U8 I16 U16 I32 U32 I64 U64 BOOL",
         dtype.get<std::string>());
  }
  entry.tensor.dtype = word->first;

  const Json& shape = json["shape"];
  if (!shape.is_array()) {
    fail(path, fmt::format("the shape of {} is not a list", tensor), "a list of extents",
         shape.type_name());
  }
  if (shape.size() > static_cast<size_t>(kMaxRank)) {
    fail(path, fmt::format("{} has too many dimensions", tensor), fmt::format("{}", kMaxRank),
         fmt::format("{}", shape.size()));
  }
  int64_t size = bytes(entry.tensor.dtype);
  bool overflow = false, empty = false;
  for (const Json& extent : shape) {
    const int64_t value = count(path, fmt::format("an extent of {}", tensor), extent);
    entry.tensor.shape.push_back(value);
    empty = empty || value == 0;
    overflow = overflow || __builtin_mul_overflow(size, value, &size);
  }
  if (overflow && !empty) {
    fail(path, fmt::format("{} is too large", tensor), "less than 2^63 bytes", shape.dump());
  }
  if (empty) size = 0;

  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(path, fmt::format("the data_offsets of {} are not a pair", tensor), "[begin, end]",
         offsets.is_array() ? fmt::format("{} numbers", offsets.size()) : offsets.type_name());
  }
  entry.begin = count(path, fmt::format("an offset of {}", tensor), offsets[0]);
  entry.end = count(path, fmt::format("an offset of {}", tensor), offsets[1]);
  if (entry.begin > entry.end) {
    fail(path, fmt::format("{} ends before it begins", tensor), "begin <= end",
         fmt::format("[{}, {}]", entry.begin, entry.end));
  }
  if (entry.end - entry.begin != size) {
    fail(path, fmt::format("{} has the wrong size", tensor),
         fmt::format("{} bytes for {}{}", size, word->second, to_string(entry.tensor.shape)),
         fmt::format("{} bytes", entry.end - entry.begin));
  }
  return entry;
}

/// The tensors must tile the data exactly.
void check_coverage(const std::string& path, const std::vector<Entry>& entries,
                    int64_t data_bytes) {
  int64_t at = 0;
  const Entry* previous = nullptr;
  for (const Entry& entry : entries) {
    const std::string& name = entry.tensor.name;
    if (entry.end > data_bytes) {
      fail(path, fmt::format("tensor '{}' lies outside the file", name),
           fmt::format("offsets up to {}", data_bytes),
           fmt::format("[{}, {}]", entry.begin, entry.end));
    }
    if (entry.begin < at) {
      fail(path, fmt::format("tensors '{}' and '{}' overlap", previous->tensor.name, name),
           fmt::format("begin = {}", at), fmt::format("begin = {}", entry.begin));
    }
    if (entry.begin > at) {
      fail(path, fmt::format("there is a hole before tensor '{}'", name),
           fmt::format("begin = {}", at), fmt::format("begin = {}", entry.begin));
    }
    at = entry.end;
    previous = &entry;
  }
  if (at != data_bytes) {
    fail(path, "there are bytes that belong to no tensor", fmt::format("{} bytes of data", at),
         fmt::format("{}", data_bytes));
  }
}

void check_booleans(const std::string& path, const StoredTensor& tensor) {
  if (tensor.dtype != DType::boolean) return;
  for (const std::byte value : tensor.data.bytes()) {
    if (value <= std::byte{1}) continue;
    fail(path, fmt::format("tensor '{}' holds a BOOL that is neither 0 nor 1", tensor.name),
         "0 or 1", fmt::format("{}", static_cast<int>(value)));
  }
}

}  // namespace

const StoredTensor* Safetensors::find(std::string_view name) const {
  for (const StoredTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::string_view safetensors_word(DType dtype) {
  for (const auto& [known, word] : kWords) {
    if (known == dtype) return word;
  }
  internal_error(fmt::format("dtype {} has no word in safetensors files", name(dtype)));
}

Safetensors read_safetensors(const std::string& path) {
  const InputFile file(path);
  constexpr int64_t kPrefix = 8;
  if (file.size() < kPrefix) {
    fail(path, "the file is truncated", "8 bytes of header length",
         fmt::format("{} bytes", file.size()));
  }
  uint64_t stated = 0;
  file.read(0, std::as_writable_bytes(std::span(&stated, 1)));
  if (stated > static_cast<uint64_t>(kMaxHeader)) {
    fail(path, "is not a safetensors file",
         fmt::format("8 bytes that say how long the header is, at most {}", kMaxHeader),
         fmt::format("{}", stated));
  }
  const auto header_bytes = static_cast<int64_t>(stated);
  if (header_bytes > file.size() - kPrefix) {
    fail(path, "the header is longer than the file",
         fmt::format("at most {} bytes", file.size() - kPrefix),
         fmt::format("{} bytes", header_bytes));
  }
  std::string text(static_cast<size_t>(header_bytes), '\0');
  file.read(kPrefix, std::as_writable_bytes(std::span(text)));
  const Json header = parse_header(path, text);

  Safetensors result;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(parse_tensor(path, name, value));
      continue;
    }
    if (!value.is_object()) {
      fail(path, "__metadata__ is not an object", "an object of strings", value.type_name());
    }
    for (const auto& [key, item] : value.items()) {
      if (!item.is_string()) {
        fail(path, fmt::format("__metadata__ '{}' is not a string", key), "a string",
             item.type_name());
      }
      result.metadata[key] = item.get<std::string>();
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const int64_t data_begin = kPrefix + header_bytes;
  check_coverage(path, entries, file.size() - data_begin);
  for (Entry& entry : entries) {
    entry.tensor.data = HostBuffer(entry.end - entry.begin);
    file.read(data_begin + entry.begin, entry.tensor.data.bytes());
    check_booleans(path, entry.tensor);
    result.tensors.push_back(std::move(entry.tensor));
  }
  return result;
}

void write_safetensors(const std::string& path, const Safetensors& file) {
  AtomicFile out(path);
  write_safetensors(out, file);
}

void write_safetensors(AtomicFile& out, const Safetensors& file) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  for (const auto& [name, value] : file.metadata) {
    check_utf8(name);
    check_utf8(value);
  }
  int64_t offset = 0;
  for (const StoredTensor& tensor : file.tensors) {
    TESSERA_CHECK(tensor.data.size() == num_elements(tensor.shape) * bytes(tensor.dtype),
                  fmt::format("tensor {} has the wrong number of bytes", tensor.name));
    check_utf8(tensor.name);
    TESSERA_CHECK(!header.contains(tensor.name),
                  fmt::format("tensor {} is written twice", tensor.name));
    header[tensor.name] = {
        {"dtype", safetensors_word(tensor.dtype)},
        {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
        {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_bytes = text.size();

  out.write(std::as_bytes(std::span(&header_bytes, 1)));
  out.write(text);
  for (const StoredTensor& tensor : file.tensors) out.write(tensor.data.bytes());
  out.commit();
}

}  // namespace tessera::tools
