/* The code path for x86 with AVX-512: products of its own, everything else as with AVX2. */
#include "internal.h"

#if defined(__x86_64__)

#include "avx512_internal.h"

static code_path avx512_path;

const code_path *ds4_avx512(void) {
    const code_path *avx2 = ds4_avx2();
    int usable = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("bmi2");
    if (!usable) return NULL;
    if (!avx512_path.name) {
        avx512_path = *avx2;
        avx512_path.row_dot = ds4_avx512_row_dot;
        avx512_path.rows_dot = ds4_avx512_rows_dot;
        avx512_path.tile = ds4_avx512_tile;
        avx512_path.float_tile = ds4_avx512_float_tile;
        avx512_path.name = "avx512";
    }
    return &avx512_path;
}

#else

const code_path *ds4_avx512(void) { return NULL; }

#endif
