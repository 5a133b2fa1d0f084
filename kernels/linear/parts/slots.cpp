#include "kernels/linear/parts/slots.h"

#include <map>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::linear {

using namespace dsl;

void require_slots(const Call& c, bool skips_padding) {
  if (!c.has("pool")) return;
  for (const char* name : {"read_slots", "write_slots"}) {
    if (c.has(name) && !values_are_checked(c.given(name))) return;
  }
  const int64_t requests = c["B"], slots = c["N"];
  for (const char* name : {"read_slots", "write_slots"}) {
    if (c.has(name)) require_values(c.check(), name, c.given(name), -1, slots - 1);
  }
  const auto read_slot = [&](int64_t b) {
    return c.has("read_slots") ? integer_at(c.given("read_slots"), b) : b;
  };
  std::map<int64_t, int64_t> readers;
  for (int64_t b = 0; b < requests; ++b) readers.emplace(read_slot(b), b);
  std::map<int64_t, int64_t> readers_from_end;
  for (int64_t b = requests - 1; b >= 0; --b) readers_from_end.emplace(read_slot(b), b);
  const int64_t of_request =
      c.has("write_slots") && requests > 0 ? c.given("write_slots").size() / requests : 1;
  std::map<int64_t, int64_t> writers;
  for (int64_t i = 0; i < requests * of_request; ++i) {
    const int64_t b = i / of_request;
    const int64_t slot = c.has("write_slots") ? integer_at(c.given("write_slots"), i) : b;
    if (slot < 0 || (skips_padding && read_slot(b) < 0)) continue;
    const std::string_view blamed = c.has("write_slots") ? "write_slots" : "read_slots";
    c.need(writers.emplace(slot, b).second, blamed, "a slot is written twice", "slots that differ",
           "slot " + std::to_string(slot) + " twice");
    const auto first = readers.find(slot), last = readers_from_end.find(slot);
    const bool is_shared = first != readers.end() && (first->second != b || last->second != b);
    c.need(!is_shared, blamed, "a slot is written by one request and read by another",
           "slots that other requests do not read", "slot " + std::to_string(slot));
  }
}

void require_slots_of_tokens(const Call& c) {
  const TensorView& slots = c.given("write_slots");
  const int64_t tokens = c["n"];
  c.need(slots.rank() == 1 || slots.shape[1] == tokens, "write_slots",
         "argument 'write_slots' has the wrong shape",
         "[B], or a slot of each of the " + std::to_string(tokens) + " tokens", to_string(slots));
}

int64_t slot_to_read(const Case& c, int64_t request) {
  return request * c["n"];
}

int64_t slot_to_write(const Case& c, int64_t element) {
  return c.find("m") ? element : element * c["n"];
}

int64_t slot_from_end(const Case& c, int64_t request) {
  return c["N"] - 1 - request;
}

Value slot_of(Builder& k, const Value& given, const Value& slots, const std::string& argument) {
  auto fits = k.let("slot_fits", given >= -1 && given < slots);
  k.report_unless(fits, out_of_range(argument));
  return k.let("slot", select(fits, given, -1));
}

}  // namespace tessera::kernels::linear
