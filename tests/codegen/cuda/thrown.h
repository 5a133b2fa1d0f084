#pragma once
// The text of an exception, and a search in it.

#include <exception>
#include <string>

namespace tessera::test {

/// The error that `action` throws, as text; "" if it throws nothing.
template <class Action>
std::string thrown(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tessera::test
