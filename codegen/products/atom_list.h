#pragma once
// The rows of the table of matrix instructions. The first one takes what fits no other. tests/codegen/new_atom adds one.

#define TESSERA_ATOMS(ROW) ROW(kMma) ROW(kWgmma)
