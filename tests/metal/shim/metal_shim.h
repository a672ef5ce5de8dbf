// Metal's language and library for a C++ compiler: what kernel bodies of this project may use.
// Only documented names are declared, so an unknown one does not compile. <cmath> is left out:
// after `using namespace metal` its names would collide.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "runtime.h"

#include "scalar.h"
#include "vector.h"
#include "math.h"
#include "simd.h"
#include "matrix.h"
#include "atomic.h"

// Address spaces: checked by the lint, without meaning here. `constant` is not `const`, because
// MLX writes `const constant`. Threadgroup arrays are rewritten before they get here.
#define device
#define thread
#define constant
#define threadgroup
#define kernel

using namespace metal;
#include "mlx_preamble.h"
