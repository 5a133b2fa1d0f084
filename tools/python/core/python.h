#pragma once
// Python's C interface and what owns its references, for all files of this folder.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::python {

namespace nb = nanobind;

/// The object of a new reference. Throws the Python error that is set if there is none.
inline nb::object owned(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

/// Throws the Python error that is set if a call of the C interface says so.
inline void check(int status) {
  if (status < 0) throw nb::python_error();
}

/// The text of a str, valid as long as it lives.
inline std::string_view text_of(nb::handle str) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(str.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<size_t>(size)};
}

/// str(object).
inline std::string str_of(nb::handle object) {
  return std::string(text_of(owned(PyObject_Str(object.ptr()))));
}

/// A list of plain structs, the first N of them without allocation and never initialised.
template <class T, size_t N>
class Inline {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Inline() = default;
  Inline(const Inline&) = delete;
  Inline& operator=(const Inline&) = delete;

  T& push_back(const T& value) {
    if (size_ == capacity_) grow();
    return *new (data_ + size_++) T(value);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  void grow() {
    std::vector<std::byte> larger(2 * capacity_ * sizeof(T) + alignof(T));
    void* start = larger.data();
    size_t space = larger.size();
    T* moved = static_cast<T*>(std::align(alignof(T), 2 * capacity_ * sizeof(T), start, space));
    for (size_t i = 0; i < size_; ++i) new (moved + i) T(data_[i]);
    data_ = moved;
    capacity_ *= 2;
    heap_ = std::move(larger);
  }

  alignas(T) std::byte storage_[N * sizeof(T)];
  T* data_ = reinterpret_cast<T*>(storage_);
  size_t size_ = 0, capacity_ = N;
  std::vector<std::byte> heap_;
};

/// The differences between the kinds of calls of an op, in words.
using Key = Inline<uint64_t, 256>;

/// References that are given back at the end. No allocation for the first 24.
class References {
 public:
  References() = default;
  ~References() {
    for (size_t i = 0; i < objects_.size(); ++i) Py_XDECREF(objects_[i]);
  }
  References(const References&) = delete;
  References& operator=(const References&) = delete;

  size_t size() const { return objects_.size(); }
  PyObject* operator[](size_t i) const { return objects_[i]; }
  PyObject* back() const { return objects_[objects_.size() - 1]; }
  void push_back(nb::object object) { objects_.push_back(object.release().ptr()); }
  /// Puts another object there and returns the one before.
  nb::object replace(size_t i, nb::object object) {
    return nb::steal(std::exchange(objects_[i], object.release().ptr()));
  }

 private:
  Inline<PyObject*, 24> objects_;
};

}  // namespace tessera::python
