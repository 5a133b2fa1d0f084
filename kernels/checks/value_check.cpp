#include "kernels/checks/value_check.h"

#include <cstring>
#include <utility>

#include "kernels/jit/call_context.h"

namespace tessera::kernels {

Dims place_of(const TensorView& view, int64_t element) {
  Dims place = view.shape;
  for (int i = view.rank() - 1; i >= 0; --i) {
    place[i] = element % view.shape[i];
    element /= view.shape[i];
  }
  return place;
}

namespace {

template <class T>
int64_t load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return static_cast<int64_t>(value);
}

}  // namespace

bool values_are_checked(const TensorView& view) {
  return !jit::call_context().takes_any_values && !is_absent(view) && !view.device.is_cuda();
}

int64_t integer_at(const TensorView& view, int64_t element) {
  const Dims place = place_of(view, element);
  int64_t offset = 0;
  for (int i = 0; i < view.rank(); ++i) offset += place[i] * view.strides[i];
  const std::byte* address = static_cast<const std::byte*>(view.data) + offset * bytes(view.dtype);
  if (view.dtype == DType::i64) return load<int64_t>(address);
  if (view.dtype == DType::i32) return load<int32_t>(address);
  if (view.dtype == DType::i16) return load<int16_t>(address);
  TESSERA_CHECK(view.dtype == DType::boolean, "integer_at takes i16, i32, i64 and bool");
  return load<uint8_t>(address);
}

std::string out_of_range(std::string_view name) {
  return "argument '" + std::string(name) + "' has a value out of range";
}

void require_values(const ArgCheck& check, std::string_view name, const TensorView& view,
                    int64_t lowest, int64_t highest, const std::function<bool(int64_t)>& counts) {
  if (!values_are_checked(view)) return;
  for (int64_t i = 0; i < view.size(); ++i) {
    const int64_t value = integer_at(view, i);
    if ((value >= lowest && value <= highest) || (counts && !counts(i))) continue;
    check.require(false, name, out_of_range(name),
                  std::to_string(lowest) + " .. " + std::to_string(highest),
                  std::to_string(value) + " at " + to_string(place_of(view, i)));
  }
}

void require_ends(const ArgCheck& check, std::string_view name, const TensorView& view,
                  int64_t highest) {
  if (!values_are_checked(view)) return;
  int64_t lowest = 0;
  for (int64_t i = 0; i < view.size(); ++i) {
    const int64_t end = integer_at(view, i);
    check.require(end >= lowest && end <= highest, name, out_of_range(name),
                  std::to_string(lowest) + " .. " + std::to_string(highest),
                  std::to_string(end) + " at " + to_string(Dims{i}));
    lowest = end;
  }
}

UncheckedValues::UncheckedValues()
    : before_(std::exchange(jit::call_context().takes_any_values, true)) {}
UncheckedValues::~UncheckedValues() {
  jit::call_context().takes_any_values = before_;
}

}  // namespace tessera::kernels
