#pragma once
// A header of the consumer's own, by a name that Tessera has too.
inline const char* greeting() {
  return "own";
}
