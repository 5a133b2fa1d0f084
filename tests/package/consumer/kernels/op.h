#pragma once
// As runtime/log.h.
inline const char* own_name() {
  return "op";
}
